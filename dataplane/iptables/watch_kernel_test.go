package iptables

import (
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

func TestKernelWatch(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		k.write(creations(k.scaffold())...)
		for _, table := range []Table{Mangle, Filter, NAT} {
			g := guard{table: table, canary: chainCanary}
			look := func(when string, want bool) {
				k.Helper()
				if got := g.look(k.Context(), k.tool); got != want {
					k.Errorf("%s: %s: gone = %v, want %v", table, when, got, want)
				}
			}
			look("first look", false)
			before, sized := k.tool.TableSize(table)
			if sized != (k.variant == Legacy) {
				k.Errorf("%s: a size was told: %v", table, sized)
			}
			look("nothing happened", false)
			k.run(k.tool.programs.iptables, "-t", string(table), "-F")
			k.run(k.tool.programs.iptables, "-t", string(table), "-X")
			look("flushed", true)
			if after, _ := k.tool.TableSize(table); sized && after == before {
				k.Errorf("%s: flushed, and its size is the same: %+v", table, after)
			}
		}
	})
}

func TestKernelWatchKeepsQuietWhileTheLockIsHeld(t *testing.T) {
	inNamespace(t, func() {
		k := newKernelTest(t, Legacy, service.IPv4)
		k.write(creations([]*dataplane.Object{chainObject(Mangle, chainCanary)})...)
		g := guard{table: Mangle, canary: chainCanary}
		g.look(t.Context(), k.tool)
		k.run(k.tool.programs.iptables, "-t", "mangle", "-X", chainCanary)
		release := holdLock(t)
		if g.look(t.Context(), k.tool) {
			t.Error("with the lock held, the canary counts as gone")
		}
		release()
		if !g.look(t.Context(), k.tool) {
			t.Error("with the lock free again, nobody misses the canary")
		}
	})
}
