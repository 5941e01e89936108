// Package rival finds the other proxies of this network namespace, and makes sure that one
// of them writes rules at a time. It stands above the root package; package daemon calls it.
//
// [Lock] separates Sluices. [Looker] recognizes proxies that do not know the lock: a
// kube-proxy, or an older Sluice. Nothing here changes anything on the node.
package rival

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/holder"
)

// The ports of kube-proxy (v1.36): health and metrics.
const (
	healthPort  = 10256
	metricsPort = 10249
)

// ownerTime bounds the search for the owner of one socket.
const ownerTime = 10 * time.Second

// Sighting is another proxy of this network namespace, or a process that looks like one.
type Sighting struct {
	holder.Process
	// Ports are the ports of kube-proxy on which it listens.
	Ports []uint16
	// Named says that the process has the name of a proxy. Otherwise the ports are the
	// only evidence.
	Named bool
}

// String describes the process in one line.
func (s Sighting) String() string {
	var ports []string
	for _, p := range s.Ports {
		ports = append(ports, strconv.Itoa(int(p)))
	}
	switch {
	case len(ports) == 0:
		return s.Process.String()
	case s.Named:
		return fmt.Sprintf("%s, which listens on %s", s.Process, strings.Join(ports, " and "))
	default:
		return fmt.Sprintf("%s, which listens on %s as kube-proxy does", s.Process, strings.Join(ports, " and "))
	}
}

// Looker looks for other proxies that do not know the [Lock]. One goroutine may use it.
type Looker struct {
	// owners are the owners of the sockets that the last look saw: finding them takes
	// longer than everything else.
	owners map[uint32]holder.Process
}

// Look lists the other proxies, except for those that wait for this process. A process
// counts if it has the name of a proxy; if it has both ports of kube-proxy, under any name
// (k3s); or if it has one of them and cannot be seen, as in a container. After an error,
// only names count.
func (l *Looker) Look(waits func(pid int) bool) ([]Sighting, error) {
	seen := map[int]*Sighting{}
	for _, p := range Proxies() {
		if !waits(p.PID) {
			seen[p.PID] = &Sighting{Process: p, Named: true}
		}
	}
	open, err := holder.ListeningTCP()
	owners := map[uint32]holder.Process{}
	for _, socket := range open {
		if port := socket.At.Port(); port != healthPort && port != metricsPort || socket.OpenIn("self") {
			continue
		}
		owner := l.ownerOf(socket, seen)
		owners[socket.Inode] = owner
		if waits(owner.PID) { // 0 for one that cannot be seen
			continue
		}
		s := seen[owner.PID]
		if s == nil {
			s = &Sighting{Process: owner}
			seen[owner.PID] = s
		}
		if !slices.Contains(s.Ports, socket.At.Port()) { // one of each family
			s.Ports = append(s.Ports, socket.At.Port())
		}
	}
	l.owners = owners
	var all []Sighting
	for _, s := range seen {
		slices.Sort(s.Ports)
		if s.Named || s.PID == 0 || len(s.Ports) == 2 {
			all = append(all, *s)
		}
	}
	slices.SortFunc(all, func(a, b Sighting) int { return cmp.Compare(a.PID, b.PID) })
	return all, err
}

// ownerOf finds the owner of a socket, trying the sighted processes first.
func (l *Looker) ownerOf(socket holder.Socket, seen map[int]*Sighting) holder.Process {
	for pid, s := range seen {
		if pid != 0 && socket.OpenIn(strconv.Itoa(pid)) {
			return s.Process
		}
	}
	if owner, known := l.owners[socket.Inode]; known {
		return owner
	}
	return socket.Owner(time.Now().Add(ownerTime))
}

// namespaceOf returns the name of a process's network namespace; empty if it is not visible.
func namespaceOf(pid string) string {
	name, err := os.Readlink(filepath.Join("/proc", pid, "ns/net"))
	if err != nil {
		return ""
	}
	return name
}

// Proxies lists the visible other processes of this network namespace that have the name of
// a node proxy. In a container without hostPID, none is visible.
func Proxies() []holder.Process {
	here := namespaceOf("thread-self")
	var found []holder.Process
	for _, pid := range holder.Visible() {
		words := holder.Arguments(pid)
		if pid == os.Getpid() || !isProxy(words) || here == "" || namespaceOf(strconv.Itoa(pid)) != here {
			continue
		}
		found = append(found, holder.ProcessOf(pid))
	}
	return found
}

// isProxy reports, by its command line, whether a program serves as a node proxy:
// kube-proxy, kube-proxy in hyperkube, or Sluice under its own name. A sandbox has its own
// network namespace, and the process that started it does not serve.
func isProxy(words []string) bool {
	verb := func(wanted ...string) bool {
		return len(words) > 1 && slices.Contains(wanted, words[1])
	}
	if len(words) == 0 {
		return false
	}
	switch filepath.Base(words[0]) {
	case "kube-proxy":
		return !slices.ContainsFunc(words[1:], endsAtOnce)
	case "hyperkube":
		return verb("proxy", "kube-proxy")
	case "sluice":
		return verb("proxy", "run") && !slices.ContainsFunc(words[1:], endsAtOnce)
	default:
		return false
	}
}

// endsAtOnce recognizes the flags with which a proxy does not serve here.
func endsAtOnce(word string) bool {
	word, value, given := strings.Cut(strings.ReplaceAll(word, "_", "-"), "=")
	switch word {
	case "--write-config-to":
		return true
	case "--cleanup", "--init-only", "--sandbox", "--help", "-h", "--version":
		return !given || value == "true" || value == "1"
	default:
		return false
	}
}
