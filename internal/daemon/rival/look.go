package rival

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The ports of kube-proxy (v1.36): health and metrics.
const (
	healthPort  = 10256
	metricsPort = 10249
)

// Sighting is another proxy of this network namespace, or what looks like one.
type Sighting struct {
	Process
	// Ports are those of kube-proxy that it listens on.
	Ports []uint16
	// Named tells that the process has the name of a proxy. Without it, the ports are
	// all that speaks for it.
	Named bool
}

// String says what has been seen.
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

// Looker looks for proxies beside this one that do not know of the [Lock]. One
// goroutine may use it.
type Looker struct {
	// owners remembers whose the sockets were that the last look saw: finding that out
	// takes longer than all the rest.
	owners map[uint32]Process
}

// Look lists the proxies beside this process, but for those that wait for it. A
// process counts that is named as a proxy; one that has both ports of kube-proxy,
// under whatever name (k3s); and one that has any of them and cannot be seen, as in a
// container. An error means that the ports could not be looked at.
func (l *Looker) Look(waits func(pid int) bool) ([]Sighting, error) {
	seen := map[int]*Sighting{}
	for _, p := range Proxies() {
		if !waits(p.PID) {
			seen[p.PID] = &Sighting{Process: p, Named: true}
		}
	}
	open, err := listeners(healthPort, metricsPort)
	owners := map[uint32]Process{}
	for _, socket := range open {
		if has("self", socket.inode) {
			continue
		}
		owner := l.ownerOf(socket, seen)
		owners[socket.inode] = owner
		if waits(owner.PID) { // 0 for one that cannot be seen
			continue
		}
		s := seen[owner.PID]
		if s == nil {
			s = &Sighting{Process: owner}
			seen[owner.PID] = s
		}
		if !slices.Contains(s.Ports, socket.at.Port()) { // one of each family
			s.Ports = append(s.Ports, socket.at.Port())
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

// ownerOf finds out whose a socket is, and asks those who were seen first.
func (l *Looker) ownerOf(socket listener, seen map[int]*Sighting) Process {
	for pid, s := range seen {
		if pid != 0 && has(strconv.Itoa(pid), socket.inode) {
			return s.Process
		}
	}
	if owner, known := l.owners[socket.inode]; known {
		return owner
	}
	return socket.owner()
}
