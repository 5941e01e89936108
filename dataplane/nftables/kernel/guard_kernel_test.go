// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"errors"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// guardWorld is a guard in a namespace of its own.
type guardWorld struct {
	*testing.T
	family service.Family
	node   *netns.Namespace
	guard  *kernel.Guard
}

func eachGuard(t *testing.T, test func(*guardWorld)) {
	for _, family := range service.Families {
		t.Run(family.String(), func(t *testing.T) {
			w := &guardWorld{T: t, family: family, node: netnstest.New(t, "node")}
			w.guard = w.open()
			test(w)
		})
	}
}

func (w *guardWorld) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *guardWorld) open() *kernel.Guard {
	w.Helper()
	g, err := kernel.NewGuard(w.family, w.node.Do)
	w.check(err)
	w.Cleanup(func() { w.check(g.Close()) })
	return g
}

func (w *guardWorld) nft(words ...string) string {
	w.Helper()
	out, err := netnstest.Output(w.node, exec.Command("nft", words...))
	w.check(err)
	return string(out)
}

// expect wants elements, in any order. A reading is interrupted while the kernel makes room for more of them.
func (w *guardWorld) expect(g *kernel.Guard, want ...service.Frontend) {
	w.Helper()
	var got []service.Frontend
	testenv.Eventually(w, "the guard is read", func() (read bool) {
		var err error
		if got, err = g.Read(w.Context()); !errors.Is(err, netlink.ErrInterrupted) {
			w.check(err)
			return true
		}
		return false
	})
	slices.SortFunc(got, service.Frontend.Compare)
	slices.SortFunc(want, service.Frontend.Compare)
	if !slices.Equal(got, want) {
		w.Errorf("read %v, want %v", got, want)
	}
}

func (w *guardWorld) elements() []service.Frontend {
	addr := service.PerFamily[netip.Addr]{netip.MustParseAddr("10.0.0.41"), netip.MustParseAddr("fd00::41")}[w.family]
	return []service.Frontend{
		{Addr: addr}, {Addr: addr, Port: 80, Protocol: service.TCP}, {Addr: addr, Port: 53, Protocol: service.UDP}, {Port: 31000},
	}
}

// TestKernelGuard_ReadsWhatItWrote: a guard reads back its elements, also in another process. Additions and removals
// can be repeated, and opening and cleaning up change nothing else.
func TestKernelGuard_ReadsWhatItWrote(t *testing.T) {
	eachGuard(t, func(w *guardWorld) {
		if tables := w.nft("list", "ruleset"); tables != "" {
			w.Errorf("opening a guard left\n%s", tables)
		}
		w.expect(w.guard)
		all := w.elements()
		w.check(w.guard.Add(all[:2]))
		w.check(w.guard.Add(all))
		w.expect(w.guard, all...)
		w.nft("--json", "list", "ruleset") // which ends with an assertion if a key is not as its type
		successor := w.open()
		w.expect(successor, all...)
		w.check(successor.Remove(all[1:]))
		w.check(successor.Remove(all[1:]))
		w.expect(w.guard, all[0])
		for _, dry := range []bool{true, false} {
			there, err := in(w.node, func() (bool, error) { return kernel.RemoveGuard(w.Context(), w.family, dry) })
			if !there || err != nil {
				w.Errorf("dry %t: there is a table: %t, %v", dry, there, err)
			}
		}
		there, err := in(w.node, func() (bool, error) { return kernel.RemoveGuard(w.Context(), w.family, true) })
		if left := w.nft("list", "ruleset"); there || err != nil || left != "" {
			w.Errorf("left: %t, %v\n%s", there, err, left)
		}
	})
}

// TestKernelGuard_ReturnsAfterForeignChange: a guard table that another program changed reads as empty and is
// announced. The next change restores it without touching its other elements.
func TestKernelGuard_ReturnsAfterForeignChange(t *testing.T) {
	for name, damage := range map[string][]string{
		"rules flushed": {"flush", "chain", "FAMILY", "sluice-guard", "input"},
		"table deleted": {"delete", "table", "FAMILY", "sluice-guard"},
	} {
		t.Run(name, func(t *testing.T) {
			eachGuard(t, func(w *guardWorld) {
				all := w.elements()
				w.check(w.guard.Add(all))
				before := w.nft("list", "ruleset")
				changed := make(chan struct{}, 1000)
				go w.guard.Watch(w.Context(), func() { changed <- struct{}{} }) // the context's end
				words := slices.Clone(damage)
				words[slices.Index(words, "FAMILY")] = service.PerFamily[string]{"ip", "ip6"}[w.family]
				// The watch may not be there yet.
				for announced := false; !announced; {
					w.nft(words...)
					select {
					case <-changed:
						announced = true
					case <-time.After(50 * time.Millisecond):
						w.expect(w.guard)
						w.check(w.guard.Add(all))
					}
				}
				w.expect(w.guard)
				w.check(w.guard.Add(all))
				w.expect(w.guard, all...)
				if after := w.nft("list", "ruleset"); after != before {
					w.Errorf("before\n%s\nafter\n%s", before, after)
				}
			})
		})
	}
}

// TestKernelGuard_ManyElements: a guard adds and removes more elements than fit into one transaction.
func TestKernelGuard_ManyElements(t *testing.T) {
	const many = 5000
	eachGuard(t, func(w *guardWorld) {
		var all []service.Frontend
		for addr := w.elements()[0].Addr; len(all) < many; addr = addr.Next() {
			all = append(all, service.Frontend{Addr: addr}, service.Frontend{Addr: addr, Port: 80, Protocol: service.TCP})
		}
		w.check(w.guard.Add(all))
		w.expect(w.guard, slices.Clone(all)...)
		w.check(w.guard.Remove(all))
		w.expect(w.guard)
		if text := w.nft("list", "ruleset"); !strings.Contains(text, "sluice-guard") {
			w.Errorf("the table has gone:\n%s", text)
		}
	})
}
