// Package rival finds out who else serves, or cleans up, in this network namespace,
// and sees to it that one does at a time.
//
// [Lock] keeps Sluices apart. [Look] recognises those that know nothing of the lock:
// a kube-proxy, or a Sluice of a release before it. Nothing here changes anything on
// the node.
package rival

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Process is one process, as far as it can be seen from here.
type Process struct {
	// PID is 0 for a process of another PID namespace: a container sees its own
	// processes only.
	PID int
	// Command is the command line; empty when it cannot be read.
	Command string
}

// commandMax bounds how much is told of a command line, in bytes.
const commandMax = 300

// String says which process it is, in one line.
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

// processOf describes a process by what /proc shows of it.
func processOf(pid int) Process {
	if pid <= 0 {
		return Process{}
	}
	return Process{PID: pid, Command: plain(strings.Join(arguments(pid), " "))}
}

// self describes this process.
func self() Process { return processOf(os.Getpid()) }

// arguments gives the command line of a process, nil when it cannot be read.
func arguments(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(text) == 0 { // a kernel thread, or one that is ending, has none
		return nil
	}
	return strings.Split(string(bytes.TrimRight(text, "\x00")), "\x00")
}

// plain makes the words of others fit for one line of a log.
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

// namespaceOf names the network namespace of a process; empty when that cannot be
// seen.
func namespaceOf(pid string) string {
	name, err := os.Readlink(filepath.Join("/proc", pid, "ns/net"))
	if err != nil {
		return ""
	}
	return name
}

// Proxies lists the other processes of this network namespace that are node proxies by
// their name, as far as they can be seen: in a container without hostPID they cannot.
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

// processes lists the processes that can be seen.
func processes() []int {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil // the pattern is a good one
	}
	var all []int
	for _, name := range names {
		if pid, err := strconv.Atoi(filepath.Base(name)); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// isProxy tells by its command line whether a program serves as a node proxy:
// kube-proxy, the same in hyperkube, or Sluice under its own name. Sandboxes have a
// network namespace of their own; the process that waits for one serves nothing.
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

// endsAtOnce recognises the flags with which a proxy does not serve here.
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
