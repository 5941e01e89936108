package memory

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/service"
)

// restored gives an IPv4 kernel after one input that has to land.
func restored(t *testing.T, input string) *Kernel {
	t.Helper()
	k := NewKernel(service.IPv4)
	if err := k.Restore(context.Background(), []byte(input)); err != nil {
		t.Fatal(err)
	}
	return k
}

// rulesOf gives a chain's rules, one per line; "absent" without the chain.
func rulesOf(k *Kernel, table iptables.Table, chain string) string {
	rules, ok := k.Rules(table, chain)
	if !ok {
		return "absent"
	}
	return strings.Join(rules, "\n")
}

func toolError(t *testing.T, err error) *iptables.ToolError {
	t.Helper()
	var tool *iptables.ToolError
	if !errors.As(err, &tool) {
		t.Fatalf("got error %v, want a *iptables.ToolError", err)
	}
	return tool
}

func TestEnsureHookInsertsOnceAtTheTop(t *testing.T) {
	k := restored(t, "*nat\n:MINE - [0:0]\n-A PREROUTING -s 10.0.0.1 -j ACCEPT\nCOMMIT\n")
	rule := []string{"-m", "comment", "--comment", "a b", "-j", "MINE"}
	for range 2 {
		if err := k.EnsureHook(context.Background(), iptables.NAT, "PREROUTING", rule); err != nil {
			t.Fatal(err)
		}
	}
	want := "-m comment --comment \"a b\" -j MINE\n-s 10.0.0.1/32 -j ACCEPT"
	if got := rulesOf(k, iptables.NAT, "PREROUTING"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestEnsureHookToMissingChainIsRefused(t *testing.T) {
	k := NewKernel(service.IPv4)
	err := k.EnsureHook(context.Background(), iptables.NAT, "PREROUTING", []string{"-j", "MINE"})
	if got := toolError(t, err); got.Outcome != dataplane.Rejected {
		t.Errorf("got %v, want rejected", got.Outcome)
	}
}

func TestRemoveHookDeletesEveryCopy(t *testing.T) {
	k := restored(t, "*nat\n:MINE - [0:0]\n-A PREROUTING -j MINE\n-A PREROUTING -s 10.0.0.1 -j ACCEPT\n-A PREROUTING -j MINE\nCOMMIT\n")
	for range 2 { // the second finds nothing, which is no error
		if err := k.RemoveHook(context.Background(), iptables.NAT, "PREROUTING", []string{"-j", "MINE"}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := rulesOf(k, iptables.NAT, "PREROUTING"), "-s 10.0.0.1/32 -j ACCEPT"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRemoveHookOfWhatWasNeverThereIsNoError(t *testing.T) {
	k := NewKernel(service.IPv6)
	for _, chain := range []string{"PREROUTING", "NOWHERE"} {
		if err := k.RemoveHook(context.Background(), iptables.NAT, chain, []string{"-j", "NOTHING"}); err != nil {
			t.Errorf("%s: %v", chain, err)
		}
	}
}

func TestCountersCountWhatRan(t *testing.T) {
	k := NewKernel(service.IPv4)
	input := []byte("# nothing\n*nat\n:A - [0:0]\n\n-A A -j RETURN\nCOMMIT\n")
	if err := k.Restore(context.Background(), input); err != nil {
		t.Fatal(err)
	}
	if err := k.Restore(context.Background(), []byte("*nat\nGARBAGE\nCOMMIT\n")); err == nil {
		t.Fatal("garbage was taken")
	}
	if _, err := k.Save(context.Background(), iptables.NAT); err != nil {
		t.Fatal(err)
	}
	want := Counters{Restores: 2, Saves: 1, Bytes: len(input) + 20, Lines: 6, Refused: 1}
	if got := k.Counters(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestLocalAddressesAreReplacedWhole(t *testing.T) {
	k := NewKernel(service.IPv4)
	first, second := netip.MustParseAddr("192.168.0.2"), netip.MustParseAddr("192.168.1.2")
	k.SetLocal(first)
	k.SetLocal(second)
	got := []bool{k.local(first), k.local(second), k.local(netip.MustParseAddr("127.0.0.9"))}
	if want := []bool{false, true, true}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestUseFromManyGoroutines is for the race detector: commands, probes and
// damage at the same time.
func TestUseFromManyGoroutines(t *testing.T) {
	k := nodeKernel(t)
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for range 50 {
				if err := k.Restore(context.Background(), []byte("*nat\n:X - [0:0]\n-A X -j RETURN\nCOMMIT\n")); err != nil {
					t.Error(err)
				}
				k.FlushChain(iptables.NAT, "X")
			}
		})
		running.Go(func() {
			for range 50 {
				if got := k.Trace(tcp("10.244.1.11", "172.30.0.41:80", "veth1"), certain).Verdict; got != Delivered {
					t.Errorf("got %v, want delivered", got)
				}
				k.SetLocal(netip.MustParseAddr("192.168.0.2"))
				k.Counters()
			}
		})
	}
	running.Wait()
}

// fixedClock is a clock that tests move by hand.
type fixedClock struct{ at time.Time }

func (c *fixedClock) now() time.Time { return c.at }
