package waves

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// lease is the State that the nodes of a test share.
type lease struct{ State }

// node is a node of a test: a machine, and what it runs.
type node struct {
	Machine
	held string
}

func newNode(name, running, pending string) *node {
	return &node{Machine: Machine{Node: name, Running: running, Pending: pending, Limit: 3 * time.Minute, Window: 2 * time.Minute}}
}

// step lets a node decide once, and reports whether it applies its change.
func (n *node) step(l *lease) bool {
	d := n.Next(time.Now(), &l.State)
	n.held = ""
	if d.Held {
		n.held = d.Reason
	}
	if d.Step == Take {
		l.State = l.taken(n.Pending, n.Node)
	}
	return d.Step != Wait
}

// TestOnlyTheCanaryAppliesABadConfiguration: what the canary rejects, or never reports on, reaches one node.
func TestOnlyTheCanaryAppliesABadConfiguration(t *testing.T) {
	for name, c := range map[string]struct{ result, reason string }{
		"rejected": {Bad, "a: AddressTaken"}, "no result": {"", "node a tries it first and has reported no result for 3m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lease{}
				a, b := newNode("a", "h0", "h1"), newNode("b", "h0", "h1")
				if !a.step(l) || l.Canary != "a" {
					t.Fatalf("the first node is not the canary: %+v", l.State)
				}
				if b.step(l) || b.held != "" {
					t.Fatalf("the second node does not wait for its turn: held %q", b.held)
				}
				l.Result, l.Reason = c.result, c.reason
				for range 100 {
					time.Sleep(15 * time.Second)
					if b.step(l) {
						t.Fatal("the second node applied the configuration")
					}
				}
				if b.held != c.reason {
					t.Errorf("held because of %q, want %q", b.held, c.reason)
				}
				l.Approved = "h1"
				time.Sleep(b.Window)
				b.step(l)
				time.Sleep(b.Window)
				if !b.step(l) {
					t.Error("an approved configuration is not applied")
				}
			})
		})
	}
}

// TestAGoodConfigurationSpreads: each node applies it in the window, and a bad report in the middle stops the rest.
func TestAGoodConfigurationSpreads(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := &lease{State{Hash: "h1", Canary: "a", Result: Good}}
			var waiting []*node
			for i := range 200 {
				waiting = append(waiting, newNode(strings.Repeat("n", i+1), "h0", "h1"))
			}
			applied := 0
			for elapsed := time.Duration(0); elapsed <= 2*time.Minute; elapsed += time.Second {
				var still []*node
				for _, n := range waiting {
					if n.step(l) {
						applied++
					} else {
						still = append(still, n)
					}
				}
				waiting = still
				if stopped && elapsed == 30*time.Second {
					l.Result, l.Reason = Bad, "x: unhealthy"
				}
				time.Sleep(time.Second)
			}
			switch {
			case !stopped && applied != 200:
				t.Errorf("%d of 200 nodes applied a good configuration", applied)
			case stopped && (applied < 20 || applied > 100):
				t.Errorf("%d of 200 nodes applied a configuration that was reported bad in the first quarter", applied)
			}
		})
	}
}

// TestNewerConfigurations: a newer hash supersedes, a late file does not bring an older one back, and going back to an
// older configuration works.
func TestNewerConfigurations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{State{Hash: "h1", Canary: "a", Result: Bad, Reason: "a: unhealthy"}}
		b := newNode("b", "h0", "h2")
		if !b.step(l) || l.Hash != "h2" || l.Canary != "b" || l.Result != "" {
			t.Fatalf("a newer configuration does not supersede a bad one: %+v", l.State)
		}
		late := newNode("c", "h0", "h1") // its file is that of before
		if late.step(l) || l.Hash != "h2" {
			t.Fatalf("a late file came back: %+v", l.State)
		}
		back := newNode("b", "h2", "h0") // the file of the canary changes again
		if !back.step(l) || l.Hash != "h0" || strings.Join(l.Previous, " ") != "h1 h2" {
			t.Fatalf("the canary cannot go back: %+v", l.State)
		}
		time.Sleep(late.Limit)
		late.step(l)
		time.Sleep(late.Limit)
		if !late.step(l) || l.Hash != "h1" {
			t.Errorf("a file that stays does not count: %+v", l.State)
		}
	})
}
