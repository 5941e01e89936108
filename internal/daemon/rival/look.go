// Package rival finds the other proxies of this network namespace, and makes sure that one
// of them writes rules at a time. It stands above the root package; package daemon calls it.
//
// [Lock] separates Sluices. [Looker] recognizes proxies that do not know the lock: a
// kube-proxy, or an older Sluice. Nothing here changes anything on the node.
package rival

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The ports of kube-proxy (v1.36): health and metrics.
const (
	healthPort  = 10256
	metricsPort = 10249
)

// Sighting is another proxy of this network namespace, or a process that looks like one.
type Sighting struct {
	Process
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
	owners map[uint32]Process
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

// ownerOf finds the owner of a socket, trying the sighted processes first.
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

// Process is a process, as far as this one can see it.
type Process struct {
	// PID is 0 for a process of another PID namespace: a container sees only its own
	// processes.
	PID int
	// Command is the command line; empty if it cannot be read.
	Command string
}

// commandMax bounds the length of a reported command line, in bytes.
const commandMax = 300

// String describes the process in one line.
func (p Process) String() string {
	switch {
	case p.PID == 0 && p.Command == "":
		return "a process that cannot be seen from here"
	case p.PID == 0:
		return fmt.Sprintf("a process of another PID namespace (%s)", p.Command)
	case p.Command == "":
		return fmt.Sprintf("pid %d", p.PID)
	default:
		return fmt.Sprintf("pid %d (%s)", p.PID, p.Command)
	}
}

// processOf returns a process as /proc shows it.
func processOf(pid int) Process {
	if pid <= 0 {
		return Process{}
	}
	return Process{PID: pid, Command: plain(strings.Join(arguments(pid), " "))}
}

// self returns this process.
func self() Process { return processOf(os.Getpid()) }

// arguments returns the command line of a process; nil if it cannot be read.
func arguments(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(text) == 0 { // a kernel thread, or one that is ending, has none
		return nil
	}
	return strings.Split(string(bytes.TrimRight(text, "\x00")), "\x00")
}

// plain makes foreign text fit for one line of a log.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
	if len(text) > commandMax {
		text = strings.ToValidUTF8(text[:commandMax], "") + "…"
	}
	return text
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
func Proxies() []Process {
	here := namespaceOf("thread-self")
	var found []Process
	for _, pid := range processes() {
		words := arguments(pid)
		if pid == os.Getpid() || !isProxy(words) || here == "" || namespaceOf(strconv.Itoa(pid)) != here {
			continue
		}
		found = append(found, Process{PID: pid, Command: plain(strings.Join(words, " "))})
	}
	return found
}

// processes lists the visible processes.
func processes() []int {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil // the pattern is valid
	}
	var all []int
	for _, name := range names {
		if pid, err := strconv.Atoi(filepath.Base(name)); err == nil {
			all = append(all, pid)
		}
	}
	return all
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
