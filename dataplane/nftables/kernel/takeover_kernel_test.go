// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/service"
)

func recorded(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTakeover_FromKubeProxy: the first write removes kube-proxy's rules, which stay applied until ours are complete.
func TestTakeover_FromKubeProxy(t *testing.T) {
	for name, bytesMax := range map[string]int{"in one transaction": 0, "in several": 4 << 10} {
		t.Run(name, func(t *testing.T) {
			fresh := newWorld(t, service.IPv4, kernel.WriterConfig{})
			var w *world
			w = newWorld(t, service.IPv4, kernel.WriterConfig{TransactionBytes: bytesMax, Progress: func(int, int) {
				checkDispatch(t, w.look())
			}})
			w.nft(recorded(t, "kube-proxy.nft"), "-f", "-")
			for n := range 60 {
				w.serve(plain(n, 4, 0))
				fresh.serve(plain(n, 4, 0))
			}
			if drift := w.audit(); drift.Unwanted == 0 {
				t.Errorf("kube-proxy's objects are not seen: %+v", drift)
			}
			receipt := w.commit()
			// kube-proxy's base chains are deleted when they no longer have rules.
			if several := receipt.Written.Calls > 2; several != (bytesMax > 0) || receipt.Written.Calls < 2 {
				t.Errorf("%d transactions", receipt.Written.Calls)
			}
			fresh.commit()
			compare(t, w.read(), fresh.read(), "after taking over")
		})
	}
}

// checkDispatch fails unless the dispatching chain uses a map with elements, kube-proxy's or
// ours.
func checkDispatch(t *testing.T, objects []dataplane.Object) {
	t.Helper()
	services, ours := "", 0
	for _, o := range objects {
		if o.ID.Container == "chain" && o.ID.Name == "services" {
			services = o.Body
		}
		if o.ID.Container == "@"+render.SetName("frontends") {
			ours++
		}
	}
	switch {
	case strings.Contains(services, "service-ips"):
	case strings.Contains(services, "frontends") && ours == 60:
	default:
		t.Errorf("packets are dispatched by none of the two, with %d frontends of ours", ours)
	}
}

// digest is that of the definition in a set's name. A set of ranges keeps its name, because the
// writer knows by it how to add them.
var digest = regexp.MustCompile(`\b(frontends|nodeports|[a-z-]*endpoints|active-cluster-ips|nodeport-addresses|hairpins|` +
	`firewalled|remembered|clients|targets|slots|live)-[0-9a-f]{6}\b`)

// rename gives the sets in a text the names of other definitions.
func rename(text string) string { return digest.ReplaceAllString(text, "${1}-former") }

// renamed returns objects with such sets.
func renamed(objects []dataplane.Object) []dataplane.Object {
	var all []dataplane.Object
	for _, o := range objects {
		o.ID, o.Body = dataplane.ID{Container: rename(o.ID.Container), Name: rename(o.ID.Name)}, rename(o.Body)
		all = append(all, o)
	}
	return all
}

// TestTakeover_SetsOfAnotherRelease: sets and maps of another release, whose different definitions have different
// names, stay until ours are complete and are then removed. In the end the table is the same as a new one.
func TestTakeover_SetsOfAnotherRelease(t *testing.T) {
	const services = 25
	fill := func(w *world) {
		for n := range services {
			w.serve(changing(n, n))
		}
	}
	for name, bytesMax := range map[string]int{"in one transaction": 0, "in several": 4 << 10} {
		t.Run(name, func(t *testing.T) {
			fresh := newWorld(t, service.IPv4, kernel.WriterConfig{})
			fill(fresh)
			fresh.commit()
			wanted := fresh.read()
			w := newWorld(t, service.IPv4, kernel.WriterConfig{})
			before := &dataplane.Batch{}
			for _, o := range renamed(wanted) {
				before.Changes = append(before.Changes, dataplane.Change{ID: o.ID, After: &o})
			}
			if receipt := w.writer.Write(t.Context(), before); receipt.Outcome != dataplane.Landed {
				t.Fatal(receipt)
			}
			w.restart(kernel.WriterConfig{TransactionBytes: bytesMax, Progress: func(int, int) {
				checkComplete(t, w.look(), wanted)
			}})
			fill(w)
			if drift := w.audit(); drift.Unwanted == 0 || drift.Missing == 0 {
				t.Errorf("the sets are no others: %+v", drift)
			}
			if calls := w.commit().Written.Calls; (calls > 1) != (bytesMax > 0) {
				t.Errorf("%d transactions", calls)
			}
			compare(t, w.read(), wanted, "after taking over")
		})
	}
}

// checkComplete fails if a chain that packets reach refers to a set of ours that lacks anything.
func checkComplete(t *testing.T, objects, wanted []dataplane.Object) {
	t.Helper()
	missing := map[string]int{}
	for _, o := range wanted {
		missing[o.ID.Container]++
	}
	for _, o := range objects {
		missing[o.ID.Container]--
	}
	for _, o := range objects {
		if o.ID.Container != "chain" || o.ID.Name != "services" {
			continue
		}
		ours, other := render.SetName("frontends")+"\x00", rename(render.SetName("frontends"))+"\x00"
		for container, n := range missing {
			if container[0] == '@' && n > 0 && strings.Contains(o.Body, ours) {
				t.Errorf("packets reach sets of ours while %d elements of %s are missing", n, container)
			}
		}
		if !strings.Contains(o.Body, ours) && !strings.Contains(o.Body, other) {
			t.Error("no map leads packets on")
		}
	}
}

// TestTakeover_ByKubeProxy: kube-proxy's first transaction lands on top of our rules, and no packet reaches our rules
// any more.
func TestTakeover_ByKubeProxy(t *testing.T) {
	w := newWorld(t, service.IPv4, kernel.WriterConfig{})
	for n := range 10 {
		w.serve(plain(n, 4, 0))
	}
	w.commit()
	w.nft(recorded(t, "kube-proxy-start.nft"), "-f", "-")
	refs, reached := map[string][]dataplane.ID{}, map[string]bool{}
	var queue []string
	for _, o := range w.read() {
		if o.ID.Container != "chain" {
			continue
		}
		refs[o.ID.Name] = render.Origin{}.Refs(&o)
		if rules.DecodeChain(o.ID.Name, []byte(o.Body)).Base != nil {
			queue = append(queue, o.ID.Name)
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		if reached[queue[0]] {
			continue
		}
		reached[queue[0]] = true
		for _, ref := range refs[queue[0]] {
			if ref.Container == "chain" {
				queue = append(queue, ref.Name)
			} else if digest.MatchString(ref.Name) {
				t.Errorf("chain %s still asks %s", queue[0], ref.Name)
			}
		}
	}
	if len(reached) < 12 {
		t.Errorf("only %d chains are reached: the check proves nothing", len(reached))
	}
	w.nft("", "delete", "table", w.table())
	if left := w.read(); len(left) != 0 {
		t.Errorf("%d objects are left when kube-proxy has removed its table", len(left))
	}
}
