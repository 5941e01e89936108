// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/aggregator"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// The judges of the simulation object to what is wrong, and to nothing else.

// settledWorld makes a world with some Services and another program's table, in which all
// is settled.
func settledWorld(t *testing.T, check func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, err := newWorld(5, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range append(story(5), event{addForeignChain, 0, 0, 1}, event{addForeignSet, 0, 0, 2}, event{settle, 0, 0, 0}) {
			if err := w.happen(e); err != nil {
				t.Fatal(err)
			}
		}
		check(w)
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
}

// without deletes one item, calls check, and adds the item again. It reports whether the
// kernel let it go.
func (s *stack) without(t *testing.T, item nftmodel.Item, check func()) bool {
	t.Helper()
	remove, add := s.removal(item)
	if remove == nil {
		return false
	}
	for i, m := range [][]message{remove, add} {
		if err := s.commit(item.Table, m...); err != nil {
			t.Fatalf("%v: %v", item.Name, err)
		}
		if i == 0 {
			check()
		}
	}
	return true
}

// removal returns messages that remove an element or the rules of a chain, and messages
// that put them back; nil for anything else.
func (s *stack) removal(item nftmodel.Item) (remove, add []message) {
	switch {
	case isElement(item):
		return []message{elementMessage(unix.NFT_MSG_DELSETELEM, item, keyOnly(item))},
			[]message{elementMessage(unix.NFT_MSG_NEWSETELEM, item, []byte(item.Body))}
	case isChain(item):
		chain := netlink.AppendText(nil, unix.NFTA_RULE_CHAIN, item.Chain)
		for attr := range netlink.Attrs([]byte(item.Body)) {
			if attr.Type == nftmodel.ItemRule {
				rule := append(slices.Clone(chain), attr.Data...)
				add = append(add, message{unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE | unix.NLM_F_APPEND, rule})
			}
		}
		if len(add) == 0 {
			return nil, nil
		}
		return []message{{kind: unix.NFT_MSG_DELRULE, attrs: chain}}, add
	default:
		return nil, nil
	}
}

// TestCheck_DetectsEverythingGone: the check finds every removed element and every chain without its rules, including
// those of other programs.
func TestCheck_DetectsEverythingGone(t *testing.T) {
	settledWorld(t, func(w *world) {
		s, removed := w.stacks[service.IPv4], 0
		for _, item := range s.kernel.Items(service.IPv4) {
			if s.without(t, item, func() {
				if _, err := w.match(); err == nil {
					t.Errorf("%v is gone and not missed", item.Name)
				}
			}) {
				removed++
			}
		}
		if removed < 80 {
			t.Errorf("only %d items were removed", removed)
		}
		if _, err := w.match(); err != nil {
			t.Errorf("with everything in place again: %v", err)
		}
	})
}

// TestCheck_NamesDamage: the check's error names the kind of damage.
func TestCheck_NamesDamage(t *testing.T) {
	remove := func(s *stack, named func(nftmodel.Item) bool) error {
		for _, item := range s.kernel.Items(s.family) {
			if remove, _ := s.removal(item); remove != nil && named(item) {
				return s.commit(item.Table, remove...)
			}
		}
		return errors.New("there is no such item")
	}
	damages := map[string]func(*stack) error{
		"is missing": func(s *stack) error {
			return remove(s, func(i nftmodel.Item) bool { return i.Table == nftrender.TableName && isElement(i) })
		},
		"is not wanted": func(s *stack) error { return s.change(event{do: addStray}) },
		"another program's is\n": func(s *stack) error {
			return remove(s, func(i nftmodel.Item) bool { return i.Table == foreignTable && isChain(i) })
		},
		"another program's is gone": func(s *stack) error {
			return s.commit(foreignTable, message{kind: unix.NFT_MSG_DELTABLE})
		},
		"another program's table": func(s *stack) error {
			return s.commit(foreignTable, setMessage("sneaked-in"))
		},
	}
	for want, damage := range damages {
		t.Run(want, func(t *testing.T) {
			settledWorld(t, func(w *world) {
				if err := damage(w.stacks[service.IPv4]); err != nil {
					t.Fatal(err)
				}
				if _, err := w.match(); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want an error with %q", err, want)
				}
			})
		})
	}
}

// TestPackets_DetectEveryLostTranslation: packets that end at the wrong place reveal every lost translation, without a
// look at the rules.
func TestPackets_DetectEveryLostTranslation(t *testing.T) {
	settledWorld(t, func(w *world) {
		there, err := w.match()
		if err != nil {
			t.Fatal(err)
		}
		if err := w.sendMany(service.IPv4, there[service.IPv4]); err != nil {
			t.Fatal(err)
		}
		s, damaged := w.stacks[service.IPv4], 0
		sizes, rejects := map[string]int{}, map[string]bool{}
		const frontendBytes = 12 // of IPv4, at the beginning of a key
		var choosy []string
		for _, item := range s.ours(isElement) {
			sizes[item.Set]++
			if item.Set == nftrender.SetName("denied-sources") || item.Set == nftrender.SetName("allowed-sources") {
				choosy = append(choosy, item.Key[:frontendBytes])
			}
			if item.Set == nftrender.SetName("no-local-endpoints") {
				rejects[item.Key] = true
			}
		}
		for _, item := range s.ours(isElement) {
			// Not every source range and hairpin concerns one of the senders, a ClusterIP
			// rejects the ports that no Service has as well, and who is sent to the only
			// endpoint anew stays with it.
			// Without local endpoints, packets from outside are rejected after all translations, with or
			// without the frontend. Some elements only count.
			if slices.Contains([]string{nftrender.SetName("admitted"), nftrender.SetName("nodeport-admitted"), nftrender.SetName("out-of-range"), nftrender.SetName("nodeport-out-of-range")}, item.Set) {
				continue
			}
			// The sources of a frontend may leave out all senders that would reach an endpoint.
			if strings.HasPrefix(item.Set, nftrender.SetName("cluster-endpoints")) &&
				slices.ContainsFunc(choosy, func(frontend string) bool { return strings.HasPrefix(item.Key, frontend) }) {
				continue
			}
			if item.Set == nftrender.SetName("frontends") && rejects[item.Key] ||
				nftrender.IsLiveSet(item.Set) && sizes[item.Set] == 1 || slices.Contains([]string{nftrender.SetName("allowed-sources"), nftrender.SetName("nodeport-denied-sources"), hairpins, nftrender.SetName("active-cluster-ips")}, item.Set) ||
				(item.Set == nftrender.SetName("no-endpoints") && strings.HasPrefix(item.Key, string(clusterIP(service.IPv4, 0).AsSlice()[:2]))) {
				continue
			}
			s.without(t, item, func() {
				damaged++
				if w.sendMany(service.IPv4, there[service.IPv4]) == nil {
					t.Errorf("no packet misses %v", item.Name)
				}
			})
		}
		if damaged < 20 {
			t.Errorf("only %d elements were removed", damaged)
		}
	})
}

// sendMany sends so many packets that no frontend and no kind of sender is left out.
func (w *world) sendMany(family service.Family, there []served) error {
	for range 30 {
		if err := w.sendPackets(family, there); err != nil {
			return err
		}
	}
	return nil
}

// reached sums up how probable it is to be served, over all frontends.
func (g *guard) reached() (sum float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range g.fronts {
		sum += f.share
	}
	return sum
}

// write sends a transaction as the proxy's writer does.
func (s *stack) write(t *testing.T, messages ...message) {
	t.Helper()
	socket, err := s.guard.openSocket()
	if err != nil {
		t.Fatal(err)
	}
	rejections, err := socket.Commit(s.transaction(nftrender.TableName, messages...))
	if err != nil || len(rejections) > 0 {
		t.Fatal(err, rejections)
	}
}

// TestGuard_ObjectsToLossByWrite: the guard reports everything that a write takes away from a Service, and nothing that
// another program does.
func TestGuard_ObjectsToLossByWrite(t *testing.T) {
	settledWorld(t, func(w *world) {
		s := w.stacks[service.IPv4]
		objections, harmed := 0, 0
		s.guard.object = func(error) { objections++ }
		for _, item := range s.kernel.Items(service.IPv4) {
			remove, add := s.removal(item)
			if remove == nil || item.Table != nftrender.TableName {
				continue
			}
			byAnother := func(messages []message) {
				t.Helper()
				if err := s.guard.tamper(func() error { return s.commit(nftrender.TableName, messages...) }); err != nil {
					t.Fatal(err)
				}
			}
			clear(s.guard.altered) // it has all been put back
			served := s.guard.reached()
			s.write(t, remove...)
			if lost := s.guard.reached() < served-1e-6; lost != (objections > 0) {
				t.Errorf("without %v: %t that a Service is served worse, and %d objections", item.Name, lost, objections)
			} else if lost {
				harmed++
			}
			byAnother(add)
			objections = 0
			byAnother(remove)
			byAnother(add)
			if objections > 0 {
				t.Errorf("%v: the proxy is blamed for what another program did", item.Name)
			}
		}
		if harmed < 20 {
			t.Errorf("only %d removals harmed a Service: that proves nothing", harmed)
		}
	})
}

// TestGuard_AcceptsAPIWithdrawal: the guard does not report frontends that are lost because the API removes their
// Service.
func TestGuard_AcceptsAPIWithdrawal(t *testing.T) {
	settledWorld(t, func(w *world) {
		before := w.stacks[service.IPv4].guard.reached()
		for n := range w.cluster.specs {
			if err := w.happen(event{do: removeService, n: n}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.settle(); err != nil {
			t.Error(err)
		}
		if after := w.stacks[service.IPv4].guard.reached(); before < 5 || after != 0 {
			t.Errorf("frontends were served to %.1f, and now %.1f; want many and none", before, after)
		}
	})
}

// TestGuard_ObjectsWithoutHealthReport: the guard reports a loss exactly when health does not report it.
func TestGuard_ObjectsWithoutHealthReport(t *testing.T) {
	settledWorld(t, func(w *world) {
		s := w.stacks[service.IPv4]
		g, objections := s.guard, 0
		g.object = func(error) { objections++ }
		s.write(t, message{kind: unix.NFT_MSG_DELRULE, attrs: netlink.AppendText(nil, unix.NFTA_RULE_CHAIN, "nat-prerouting")})
		if objections == 0 {
			t.Fatal("no Service lost anything with the hook's rules: that proves nothing")
		}
		never := func(*service.Spec) bool { return false }
		var quarantined []aggregator.QuarantinedKey
		for i := range w.cluster.specs {
			quarantined = append(quarantined, aggregator.QuarantinedKey{Key: keyOf(i)})
		}
		began := time.Now()
		for _, c := range []struct {
			what   string
			status aggregator.Status
			after  time.Duration
			silent bool
		}{
			{"at once", aggregator.Status{Open: true}, 0, false},
			{"with something pending", aggregator.Status{Open: true, OldestPending: began}, 3 * time.Second, false},
			{"before the gate is open", aggregator.Status{}, 3 * time.Second, false},
			{"of the quarantined", aggregator.Status{Open: true, Quarantined: quarantined}, 3 * time.Second, false},
			{"with nothing pending", aggregator.Status{Open: true}, 3 * time.Second, true},
		} {
			objections = 0
			g.restarted()
			g.checkHealth(c.status, never)
			g.mu.Lock()
			g.open = g.open.Add(-c.after)
			for _, f := range g.fronts {
				f.lost, f.reported = f.lost.Add(-c.after), false
			}
			g.mu.Unlock()
			g.checkHealth(c.status, never)
			if silent := objections > 0; silent != c.silent {
				t.Errorf("%s: %d objections, want some: %t", c.what, objections, c.silent)
			}
		}
	})
}

// TestMonitor_Objects: the monitor reports an acknowledgment of an older incarnation, and keeps every objection.
func TestMonitor_Objects(t *testing.T) {
	m := newMonitor(nil)
	m.settle("applied", "IPv4", keyOf(1), service.Revision{Incarnation: 3, Sequence: 7})
	m.settle("applied", "IPv6", keyOf(1), service.Revision{Incarnation: 3, Sequence: 1})
	m.settle("applied", "IPv4", keyOf(1), service.Revision{Incarnation: 4, Sequence: 1})
	if err := m.objections(); err != nil {
		t.Fatal(err)
	}
	m.settle("applied", "IPv4", keyOf(1), service.Revision{Incarnation: 3, Sequence: 8})
	if err := m.objections(); err == nil {
		t.Error("an ack of the last but one incarnation was accepted")
	}
	m = newMonitor(nil)
	m.object(errors.New("two jobs"))
	if err := m.objections(); err == nil {
		t.Error("an objection was lost")
	}
}
