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

	"github.com/sluice-proxy/sluice/service"
)

// Bounds of the search for who holds a port: what it takes is time in which the writer
// does nothing else. A host with thousands of processes may be too much for it.
const (
	holderTime = 200 * time.Millisecond
	holderMax  = 3 // in one batch
)

// describeHolder says who holds the port of a place, as far as this process can see
// it; empty when nobody does any more. It looks at the network namespace of the
// calling thread.
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

// holdingSockets finds the sockets that keep others from listening at a place, by their
// inodes: those bound to its port, there or everywhere.
func holdingSockets(p place, proc string) map[string]bool {
	inodes := make(map[string]bool)
	for _, family := range [...]string{"", "6"} { // a socket of IPv6 may take IPv4 as well
		table, err := os.Open(filepath.Join(proc, "thread-self/net", p.protocol.String()+family))
		if err != nil {
			continue // the host has no such family
		}
		collectSockets(table, p, inodes)
		_ = table.Close() // opened for reading, nothing can be lost
	}
	return inodes
}

// collectSockets reads a table of /proc/net, whose lines are "sl local remote st
// tx:rx tr:when retransmits uid timeout inode …", with addresses in hexadecimal.
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

// ownerOf finds a process that has one of the sockets open; 0 when none can be seen in
// time.
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
			continue // it has ended, or is not to be looked at
		}
		for _, d := range descriptors {
			target, err := os.Readlink(filepath.Join(folder, d.Name()))
			if inode, ok := strings.CutPrefix(target, "socket:["); err == nil && ok && inodes[strings.TrimSuffix(inode, "]")] {
				return pid
			}
		}
	}
	return 0
}
