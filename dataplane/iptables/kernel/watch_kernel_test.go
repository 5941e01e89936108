// SPDX-License-Identifier: Apache-2.0

package kernel

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
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// quiet is how long a test waits to see that Watch reports nothing. The legacy variant looks once per second.
var quiet = map[Variant]time.Duration{NFT: 300 * time.Millisecond, Legacy: 1500 * time.Millisecond}

// watched runs the writer's watch beside a test.
type watched struct {
	*kernelTest
	reports chan time.Time
	by      chan dataplane.ForeignProcess
}

// watch starts to watch, and returns when it works.
func (k *kernelTest) watch() *watched {
	k.Helper()
	w := &watched{kernelTest: k, reports: make(chan time.Time, 100_000), by: make(chan dataplane.ForeignProcess, 100_000)}
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
		ended <- k.writer.Watch(ctx, func(by dataplane.ForeignProcess) {
			w.by <- by
			w.reports <- time.Now()
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
		// The listener works once it has heard something.
		testenv.Eventually(k, "the listener hears something", func() bool {
			k.stranger("nat", "-N", "KUBE-SVC-LISTENER")
			k.stranger("nat", "-X", "KUBE-SVC-LISTENER")
			return len(w.reports) > 0
		})
		// Reports come in the order of the changes, so that of another program is the last one.
		table := map[service.Family]string{service.IPv4: "ip nat", service.IPv6: "ip6 nat"}[k.family]
		k.run("nft", fmt.Sprintf("add chain %[1]s KUBE-SVC-LISTENER; delete chain %[1]s KUBE-SVC-LISTENER", table))
		testenv.Eventually(k, "the last change is reported", func() (last bool) {
			for len(w.reports) > 0 {
				<-w.reports
				last = (<-w.by).Command == "nft"
			}
			return last
		})
	}
	w.forget()
	return w
}

func (w *watched) forget() {
	for len(w.reports) > 0 {
		<-w.reports
		<-w.by
	}
}

// stranger runs iptables as another program would.
func (k *kernelTest) stranger(table string, args ...string) {
	k.Helper()
	k.run(k.tool.programs.iptables, append([]string{"-w", "5", "-t", table}, args...)...)
}

// expectReport makes a stranger's change and waits until Watch reports it.
func (w *watched) expectReport(what string, stranger func()) {
	w.Helper()
	w.forget()
	stranger()
	start := time.Now()
	select {
	case at := <-w.reports:
		by := <-w.by
		if known := by != (dataplane.ForeignProcess{}); known != (w.variant == NFT) {
			w.Errorf("%s: by %q", what, by)
		}
		w.Logf("%s: reported %v after the end of the program, by %q", what, max(0, at.Sub(start)).Round(10*time.Microsecond), by)
	case <-time.After(testenv.Patience):
		w.Errorf("%s: not reported within %v", what, testenv.Patience)
	}
	w.read() // the audit
}

// expectQuiet does something that Watch must not report.
func (w *watched) expectQuiet(what string, do func()) {
	w.Helper()
	w.forget()
	do()
	time.Sleep(quiet[w.variant])
	if n := len(w.reports); n != 0 {
		w.Errorf("%s: reported %d times, want none", what, n)
	}
}

// TestKernelWatch_ReportsStrangers: Watch reports rules and chains that another program removes from our chains or adds
// to them.
func TestKernelWatch_ReportsStrangers(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		k.write(creations(k.scaffold())...)
		w := k.watch()
		hook := render.HookRows()[0]
		w.expectReport("a chain emptied", func() { k.stranger("nat", "-F", "KUBE-SVC-NPX46M4PTMTKRN6Y") })
		w.expectReport("a rule deleted", func() { k.stranger("filter", "-D", "KUBE-SERVICES", "1") })
		w.expectReport("a hook deleted", func() {
			k.stranger(string(hook.Table), append([]string{"-D", hook.Chain}, hook.Rule...)...)
		})
		w.expectReport("a chain deleted", func() { k.stranger("mangle", "-X", render.ChainCanary) })
		w.expectReport("a rule added", func() { k.stranger("nat", "-I", "KUBE-SERVICES", "1", "-p", "udp", "-j", "RETURN") })
		w.expectReport("a table emptied", func() { k.stranger("nat", "-F") })
		if k.variant == NFT {
			w.expectReport("a table deleted by nft", func() {
				family := map[service.Family]string{service.IPv4: "ip", service.IPv6: "ip6"}[k.family]
				k.run("nft", "delete", "table", family, "filter")
			})
		}
	})
}

// TestKernelWatch_KnowsOwnWrites: Watch reports none of our own writes, of any kind and with any outcome.
func TestKernelWatch_KnowsOwnWrites(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		w := k.watch()
		objects := k.scaffold()
		w.expectQuiet("the first write", func() { k.write(creations(objects)...) })
		one := chainObject(render.NAT, "KUBE-SVC-BLUEAAAAAAAAAAAA", "-p tcp "+k.dnat("1"), "-p tcp "+k.dnat("2"))
		two := chainObject(render.NAT, "KUBE-SVC-BLUEAAAAAAAAAAAA", "-p tcp "+k.dnat("3"))
		w.expectQuiet("a chain made, changed and deleted", func() {
			k.write(changeOf(blue, nil, one))
			k.write(changeOf(blue, one, two))
			k.write(changeOf(blue, two, nil))
		})
		w.expectQuiet("a rejected write", func() {
			bad := chainObject(render.NAT, "KUBE-SVC-BLUEAAAAAAAAAAAA", "-j REJECT")
			if receipt := k.attempt(changeOf(blue, nil, bad)); receipt.Outcome != dataplane.Rejected {
				k.Errorf("receipt: %v", receipt)
			}
		})
		w.expectQuiet("hooks removed and made sure of", func() {
			for _, hook := range k.hooks(render.NAT) {
				k.write(changeOf(service.Node, hook, nil))
				k.write(unsure(changeOf(service.Node, hook, hook)))
			}
		})
		w.expectQuiet("an audit", func() { k.read() })
		w.expectQuiet("many chains", func() {
			var changes []dataplane.Change
			for n := range 2000 {
				changes = append(changes, changeOf(blue, nil, chainObject(render.NAT, fmt.Sprintf("KUBE-SVC-%016d", n), "-p tcp "+k.dnat("1"), "-p tcp "+k.dnat("2"))))
			}
			k.write(changes...)
		})
	})
}

// TestKernelWatch_IgnoresOtherChains: in the nft variant, Watch reports no changes of other chains, even in the same
// tables and built-in chains.
func TestKernelWatch_IgnoresOtherChains(t *testing.T) {
	for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
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

// TestKernelWatch_StrangersBehindOwnWrites: Watch reports a foreign deletion although our own write changes the table
// between the same two looks. The legacy variant sees only the size of the table.
func TestKernelWatch_StrangersBehindOwnWrites(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		k.write(creations(k.scaffold())...)
		w := k.watch()
		one := chainObject(render.NAT, "KUBE-SVC-BLUEAAAAAAAAAAAA", "-p tcp "+k.dnat("1"))
		w.expectReport("rules deleted just before our write", func() {
			k.stranger("nat", "-D", "KUBE-SVC-NPX46M4PTMTKRN6Y", "1")
			k.stranger("nat", "-D", "KUBE-SVC-NPX46M4PTMTKRN6Y", "1")
			k.stranger("nat", "-D", "KUBE-SERVICES", "1")
			k.write(changeOf(blue, nil, one))
		})
	})
}
