package iptables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// toldMax bounds how long it takes until a stranger's change is told, and quiet is how
// long nothing is told when nothing is to be; both are for machines under load.
var (
	toldMax = map[Variant]time.Duration{NFT: 2 * time.Second, Legacy: 4 * time.Second}
	quiet   = map[Variant]time.Duration{NFT: 300 * time.Millisecond, Legacy: 1500 * time.Millisecond}
)

// watched runs the writer's watch beside a test.
type watched struct {
	*kernelTest
	told chan time.Time
	by   chan dataplane.Stranger
}

// watch starts to watch. From the first own write on, it works.
func (k *kernelTest) watch() *watched {
	k.Helper()
	w := &watched{kernelTest: k, told: make(chan time.Time, 100_000), by: make(chan dataplane.Stranger, 100_000)}
	namespace, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		k.Fatal(err)
	}
	ctx, cancel := context.WithCancel(k.Context())
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			ended <- err
			return
		}
		ended <- k.writer.Watch(ctx, func(by dataplane.Stranger) {
			w.by <- by
			w.told <- time.Now()
		})
	}()
	k.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			k.Errorf("Watch ended with %v", err)
		}
		_ = namespace.Close() // opened for reading, nothing can be lost
	})
	k.read() // an audit comes first
	if k.variant == NFT {
		// The listener is there when it hears something.
		for deadline := time.Now().Add(10 * time.Second); len(w.told) == 0 && time.Now().Before(deadline); {
			k.stranger("nat", "-N", "KUBE-SVC-LISTENER")
			k.stranger("nat", "-X", "KUBE-SVC-LISTENER")
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(quiet[NFT])
	}
	w.forget()
	return w
}

func (w *watched) forget() {
	for len(w.told) > 0 {
		<-w.told
		<-w.by
	}
}

// stranger runs iptables as somebody else.
func (k *kernelTest) stranger(table string, args ...string) {
	k.Helper()
	k.run(k.tool.programs.iptables, append([]string{"-w", "5", "-t", table}, args...)...)
}

// expectTold does what a stranger does, and waits until it is told.
func (w *watched) expectTold(what string, stranger func()) {
	w.Helper()
	w.forget()
	stranger()
	start := time.Now()
	select {
	case at := <-w.told:
		by := <-w.by
		if known := by != (dataplane.Stranger{}); known != (w.variant == NFT) {
			w.Errorf("%s: by %q", what, by)
		}
		w.Logf("%s: told %v after the program has ended, by %q", what, max(0, at.Sub(start)).Round(10*time.Microsecond), by)
	case <-time.After(toldMax[w.variant]):
		w.Errorf("%s: not told within %v", what, toldMax[w.variant])
	}
	w.read() // the audit
}

// expectQuiet does something that must not be told.
func (w *watched) expectQuiet(what string, do func()) {
	w.Helper()
	w.forget()
	do()
	time.Sleep(quiet[w.variant])
	if n := len(w.told); n != 0 {
		w.Errorf("%s: told %d times, want none", what, n)
	}
}

// TestKernelWatchTellsOfStrangers: whatever of ours a stranger takes away or adds to is
// told, and soon.
func TestKernelWatchTellsOfStrangers(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		k.write(creations(k.scaffold())...)
		w := k.watch()
		hook := HookRows()[0]
		w.expectTold("a chain emptied", func() { k.stranger("nat", "-F", "KUBE-SVC-NPX46M4PTMTKRN6Y") })
		w.expectTold("a rule deleted", func() { k.stranger("filter", "-D", "KUBE-SERVICES", "1") })
		w.expectTold("a hook deleted", func() {
			k.stranger(string(hook.Table), append([]string{"-D", hook.Chain}, hook.Rule...)...)
		})
		w.expectTold("a chain deleted", func() { k.stranger("mangle", "-X", chainCanary) })
		w.expectTold("a rule added", func() { k.stranger("nat", "-I", "KUBE-SERVICES", "1", "-p", "udp", "-j", "RETURN") })
		w.expectTold("a table emptied", func() { k.stranger("nat", "-F") })
		if k.variant == NFT {
			w.expectTold("a table deleted by nft", func() {
				family := map[service.Family]string{service.IPv4: "ip", service.IPv6: "ip6"}[k.family]
				k.run("nft", "delete", "table", family, "filter")
			})
		}
	})
}

// TestKernelWatchKnowsOwnWrites: what the writer does is not told, of whatever kind and
// outcome it is.
func TestKernelWatchKnowsOwnWrites(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		w := k.watch()
		objects := k.scaffold()
		w.expectQuiet("the first write", func() { k.write(creations(objects)...) })
		one := chainObject(NAT, "KUBE-SVC-BLUEAAAAAAAAAAAA", "-p tcp "+k.dnat("1"), "-p tcp "+k.dnat("2"))
		two := chainObject(NAT, "KUBE-SVC-BLUEAAAAAAAAAAAA", "-p tcp "+k.dnat("3"))
		w.expectQuiet("a chain made, changed and deleted", func() {
			k.write(changeOf(blue, nil, one))
			k.write(changeOf(blue, one, two))
			k.write(changeOf(blue, two, nil))
		})
		w.expectQuiet("a refused write", func() {
			bad := chainObject(NAT, "KUBE-SVC-BLUEAAAAAAAAAAAA", "-j REJECT")
			if receipt := k.attempt(changeOf(blue, nil, bad)); receipt.Outcome != dataplane.Rejected {
				k.Errorf("receipt: %v", receipt)
			}
		})
		w.expectQuiet("hooks removed and made sure of", func() {
			for _, hook := range k.hooks(NAT) {
				k.write(changeOf(service.Node, hook, nil))
				k.write(unsure(changeOf(service.Node, hook, hook)))
			}
		})
		w.expectQuiet("an audit", func() { k.read() })
		w.expectQuiet("many chains", func() {
			var changes []dataplane.Change
			for n := range 2000 {
				changes = append(changes, changeOf(blue, nil, chainObject(NAT, fmt.Sprintf("KUBE-SVC-%016d", n), "-p tcp "+k.dnat("1"), "-p tcp "+k.dnat("2"))))
			}
			k.write(changes...)
		})
	})
}

// TestKernelWatchIgnoresOtherChains: what others do beside ours costs nothing in the
// nft variant, be it in the same tables and built-in chains.
func TestKernelWatchIgnoresOtherChains(t *testing.T) {
	for _, family := range service.Families {
		t.Run(family.String(), func(t *testing.T) {
			inNamespace(t, func() {
				k := newKernelTest(t, NFT, family)
				k.write(creations(k.scaffold())...)
				w := k.watch()
				w.expectQuiet("foreign churn", func() {
					for n := range 20 {
						chain := fmt.Sprintf("CNI-%d", n)
						k.stranger("nat", "-N", chain)
						k.stranger("nat", "-A", chain, "-p", "udp", "-j", "RETURN")
						k.stranger("nat", "-I", "PREROUTING", "1", "-j", chain)
						k.stranger("nat", "-D", "PREROUTING", "-j", chain)
						k.stranger("nat", "-F", chain)
						k.stranger("nat", "-X", chain)
					}
					k.stranger("filter", "-P", "FORWARD", "DROP")
				})
			})
		})
	}
}

// TestKernelWatchSeesStrangersBehindOwnWrites: in the legacy variant, what a stranger
// deletes between two looks is told although own writes change the sizes at the same
// time.
func TestKernelWatchSeesStrangersBehindOwnWrites(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		k.write(creations(k.scaffold())...)
		w := k.watch()
		one := chainObject(NAT, "KUBE-SVC-BLUEAAAAAAAAAAAA", "-p tcp "+k.dnat("1"))
		w.expectTold("a rule that makes way for one of ours", func() {
			k.stranger("nat", "-D", "KUBE-SVC-NPX46M4PTMTKRN6Y", "1")
			k.stranger("nat", "-D", "KUBE-SVC-NPX46M4PTMTKRN6Y", "1")
			k.stranger("nat", "-D", "KUBE-SERVICES", "1")
			k.write(changeOf(blue, nil, one))
		})
	})
}
