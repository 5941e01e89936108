// Package waves lets one node try a changed configuration before the others apply it. The nodes coordinate through
// the annotations of one Lease:
//
//	a file changes ──► Machine.Next ──► Take   this node is the canary: it applies, observes itself, and reports
//	                        ▲           Apply  the canary reported that all is well
//	     State of the Lease ┘           Wait   no result yet, or a bad one
//
// A Machine decides for one node and one change; it is pure. A Lease reads and writes the State. The daemon applies
// configurations and judges the node.
package waves

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"
)

// The results of a configuration.
const (
	Good = "good"
	Bad  = "bad"
)

// State is what all nodes know about the newest configuration. The zero State means that there was no change yet.
type State struct {
	// Hash identifies the configuration, and Canary is the node that tries it first.
	Hash, Canary string
	// Result is empty until a node has reported. Reason says what is wrong with a bad one, and where.
	Result, Reason string
	// Approved is the hash that a person has approved.
	Approved string
	// Previous are the hashes before, the newest last.
	Previous []string
}

// previousMax bounds State.Previous.
const previousMax = 8

// taken returns the State after a node has become the canary of a configuration.
func (s *State) taken(hash, node string) State {
	next := State{Hash: hash, Canary: node, Approved: s.Approved, Previous: s.Previous}
	if s.Hash != "" {
		next.Previous = append(slices.Clone(s.Previous), s.Hash)
	}
	next.Previous = next.Previous[max(0, len(next.Previous)-previousMax):]
	return next
}

// Step is what a node does next.
type Step int

// The steps.
const (
	Wait Step = iota
	// Take means: become the canary, and then apply.
	Take
	Apply
)

// Decision is what a node does, and why it waits.
type Decision struct {
	Step Step
	// Held means that the change waits for a person; otherwise it waits for its turn. Reason says why.
	Held   bool
	Reason string
}

// Machine decides when a node applies a changed configuration.
type Machine struct {
	// Node is the name of this node. It runs the configuration Running; Pending is the one in its file.
	Node, Running, Pending string
	// Limit is how long the canary may take. Window is the time over which the nodes apply a good configuration.
	Limit, Window time.Duration

	// seen is the State as of since.
	seen  State
	since time.Time
}

// Next decides by the newest State.
func (m *Machine) Next(now time.Time, s *State) Decision {
	if m.since.IsZero() || s.Hash != m.seen.Hash || s.Canary != m.seen.Canary || s.Result != m.seen.Result || s.Approved != m.seen.Approved {
		m.seen, m.since = *s, now
	}
	waited := now.Sub(m.since)
	switch {
	case s.Hash != m.Pending:
		// A file can be older than the State, because kubelets update files at different times. This node's is newer
		// if it leaves the configuration of the State, and if it stays as it is.
		if s.Hash != m.Running && slices.Contains(s.Previous, m.Pending) && waited < m.Limit {
			return Decision{Reason: "other nodes already have a newer file"}
		}
		return Decision{Step: Take}
	case s.Approved == m.Pending || s.Result == Good:
		if waited < m.delay() {
			return Decision{Reason: "the nodes apply it one after the other"}
		}
		return Decision{Step: Apply}
	case s.Result == Bad:
		return Decision{Held: true, Reason: s.Reason}
	case s.Canary == m.Node:
		return Decision{Step: Apply}
	case waited < m.Limit:
		return Decision{Reason: "node " + s.Canary + " tries it first"}
	default:
		return Decision{Held: true, Reason: fmt.Sprintf("node %s tries it first and has reported no result for %v", s.Canary, m.Limit)}
	}
}

// delay is the turn of this node in the window.
func (m *Machine) delay() time.Duration {
	if m.Window <= 0 {
		return 0
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(m.Node)) // it never fails
	return time.Duration(sum.Sum64() % uint64(m.Window))
}
