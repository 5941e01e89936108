package localport

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// Failure is something that went wrong while forwarding.
type Failure struct {
	// Listener names it, for example "tcp/127.0.0.1:30080".
	Listener string
	// Err is a *PanicError if forwarding panicked.
	Err error
}

// PanicError is the error of a goroutine that panicked.
type PanicError struct {
	Value any
	Stack []byte
}

// Error returns the panic's value.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the panic's value if it was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// openError says which listener of which Service cannot be opened.
type openError struct {
	owner service.Key
	place place
	err   error
	// holder says who holds the port, empty if that is not known.
	holder string
}

// Error says what to do, where that is known.
func (e *openError) Error() string {
	if !e.place.at.IsValid() {
		return fmt.Sprintf("Service %s: %v", e.owner, e.err)
	}
	text := fmt.Sprintf("Service %s: node port %d/%s cannot answer on %s: %v",
		e.owner, e.place.at.Port(), e.place.protocol, e.place.at.Addr(), e.err)
	switch {
	case e.holder != "":
		return text + fmt.Sprintf(": %s; stop it, or give one of the two another port. "+
			"The node port works at the node's other addresses", e.holder)
	case errors.Is(e.err, unix.EADDRINUSE):
		return text + fmt.Sprintf("; another program of this host listens there or on all addresses "+
			"(find it with: ss --listening --processes --numeric --%s 'sport = :%d'): "+
			"stop it, or give one of the two another port", e.place.protocol, e.place.at.Port())
	case errors.Is(e.err, unix.EACCES):
		return text + "; ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE: " +
			"grant it, or give the Service another node port"
	case errors.Is(e.err, unix.EADDRNOTAVAIL), errors.Is(e.err, unix.EAFNOSUPPORT):
		return text + "; this host does not have the address: bring the loopback interface up " +
			"(ip link set lo up), or enable the IP family"
	default:
		return text
	}
}

// Unwrap returns the system's error.
func (e *openError) Unwrap() error { return e.err }

// nodesFault reports whether the reason has nothing to do with the Service: the host has no more
// descriptors or buffers, or no loopback address.
func (e *openError) nodesFault() bool { return isOneOf(e.err, exhausted) || isOneOf(e.err, noLoopback) }

var (
	exhausted  = []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EAGAIN, unix.EINTR}
	noLoopback = []error{unix.EADDRNOTAVAIL, unix.EAFNOSUPPORT}
)

func isOneOf(err error, kinds []error) bool {
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// rejectedError says that listeners cannot be opened, and that nothing was changed for that reason.
type rejectedError struct{ failures []*openError }

// failuresShown bounds the message.
const failuresShown = 3

// Error returns the first reasons.
func (e *rejectedError) Error() string {
	var texts []string
	for _, f := range e.failures[:min(len(e.failures), failuresShown)] {
		texts = append(texts, f.Error())
	}
	if more := len(e.failures) - failuresShown; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the first reason.
func (e *rejectedError) Unwrap() error { return e.failures[0] }

// suspects returns the owners of the listeners.
func (e *rejectedError) suspects() []service.Key {
	keys := make([]service.Key, len(e.failures))
	for i, f := range e.failures {
		keys[i] = f.owner
	}
	return keys
}

// Bounds of the search for the holder of a port. The writer does nothing else meanwhile, and a host
// may have thousands of processes.
const (
	holderTime = 200 * time.Millisecond
	holderMax  = 3 // in one batch
)

// describeHolder names the holder of a place's port, as far as this process can see it; empty if
// the port is free again. It looks at the network namespace of the calling thread.
func describeHolder(p place, proc string) string {
	inodes := holdingSockets(p, proc)
	if len(inodes) == 0 {
		return ""
	}
	held := fmt.Sprintf("port %d on %s is held by ", p.at.Port(), p.at.Addr())
	pid := ownerOf(inodes, proc, time.Now().Add(holderTime))
	switch pid {
	case 0:
		return held + "a process that cannot be seen from here (it may be in another PID namespace)"
	case os.Getpid():
		return held + fmt.Sprintf("pid %d, which is this process", pid)
	}
	comm, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "comm"))
	if err != nil {
		return held + fmt.Sprintf("pid %d", pid)
	}
	return held + fmt.Sprintf("pid %d (%s)", pid, strings.TrimSpace(string(comm)))
}

// holdingSockets returns the inodes of the sockets that prevent listening at a place: those bound
// to its port, there or on all addresses.
func holdingSockets(p place, proc string) map[string]bool {
	inodes := make(map[string]bool)
	for _, family := range [...]string{"", "6"} { // an IPv6 socket may hold the port for IPv4 as well
		table, err := os.Open(filepath.Join(proc, "thread-self/net", p.protocol.String()+family))
		if err != nil {
			continue // the host does not have this family
		}
		collectSockets(table, p, inodes)
		_ = table.Close() // opened for reading, nothing can be lost
	}
	return inodes
}

// collectSockets reads a table of /proc/net, whose lines are "sl local remote st tx:rx tr:when
// retransmits uid timeout inode …", with addresses in hexadecimal.
func collectSockets(table io.Reader, p place, inodes map[string]bool) {
	const (
		local, state, inode = 1, 3, 9
		listening           = "0A"
	)
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) <= inode || (p.protocol == service.TCP && fields[state] != listening) {
			continue
		}
		at, err := parseProcAddress(fields[local])
		if err == nil && at.Port() == p.at.Port() && (at.Addr() == p.at.Addr() || at.Addr().IsUnspecified()) {
			inodes[fields[inode]] = true
		}
	}
}

var errNotAnAddress = errors.New("no address")

// parseProcAddress reads "0100007F:7580": words in the host's byte order, and a port.
func parseProcAddress(text string) (netip.AddrPort, error) {
	words, digits, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(words)
	if err != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, errNotAnAddress
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	addr, ok := netip.AddrFromSlice(b)
	port, err := strconv.ParseUint(digits, 16, 16)
	if !ok || err != nil {
		return netip.AddrPort{}, errNotAnAddress
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)), nil
}

// ownerOf returns a process that has one of the sockets open, 0 if it finds none in time.
func ownerOf(inodes map[string]bool, proc string, deadline time.Time) (pid int) {
	processes, err := os.ReadDir(proc)
	if err != nil {
		return 0
	}
	for _, process := range processes {
		pid, err := strconv.Atoi(process.Name())
		if err != nil {
			continue
		}
		if time.Now().After(deadline) {
			return 0
		}
		folder := filepath.Join(proc, process.Name(), "fd")
		descriptors, err := os.ReadDir(folder)
		if err != nil {
			continue // it has ended, or access is denied
		}
		for _, d := range descriptors {
			target, err := os.Readlink(filepath.Join(folder, d.Name()))
			inode, isSocket := strings.CutPrefix(target, "socket:[")
			if err == nil && isSocket && inodes[strings.TrimSuffix(inode, "]")] {
				return pid
			}
		}
	}
	return 0
}
