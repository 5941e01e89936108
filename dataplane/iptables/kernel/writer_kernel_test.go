// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/rendertest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// scaffold is a small rule set with everything in it: the canaries, chains that lead to one
// another, and all hooks.
func (k *kernelTest) scaffold() []*dataplane.Object {
	objects := []*dataplane.Object{
		chainObject(render.Mangle, render.ChainCanary), chainObject(render.Filter, render.ChainCanary), chainObject(render.NAT, render.ChainCanary),
		chainObject(render.NAT, "KUBE-MARK-MASQ", "-j MARK --set-xmark 0x4000/0x4000"),
		chainObject(render.NAT, "KUBE-POSTROUTING", "-m mark ! --mark 0x4000/0x4000 -j RETURN",
			`-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully`),
		chainObject(render.NAT, "KUBE-SERVICES", k.dst("1")+` -p tcp -m comment --comment "shop/blue cluster IP" -m tcp --dport 80 -j KUBE-SVC-NPX46M4PTMTKRN6Y`),
		chainObject(render.NAT, "KUBE-SVC-NPX46M4PTMTKRN6Y",
			"-p tcp -m statistic --mode random --probability 0.50000000000 "+k.dnat("1"), "-p tcp "+k.dnat("2")),
		chainObject(render.Filter, "KUBE-SERVICES", k.reject("2")),
		chainObject(render.Filter, "KUBE-FIREWALL", k.dst("8")+" -j DROP"),
		chainObject(render.Filter, "KUBE-FORWARD", "-m conntrack --ctstate INVALID -j DROP"),
	}
	names := make(map[dataplane.ID]bool)
	for _, o := range objects {
		names[o.ID] = true
	}
	for _, table := range [...]render.Table{render.Filter, render.NAT} {
		for _, hook := range k.hooks(table) {
			if target := hook.Refs()[0]; !names[target] {
				names[target] = true
				objects = append(objects, chainObject(table, target.Name))
			}
			objects = append(objects, hook)
		}
	}
	return objects
}

func creations(objects []*dataplane.Object) []dataplane.Change {
	var changes []dataplane.Change
	for _, o := range objects {
		changes = append(changes, changeOf(service.Node, nil, o))
	}
	return changes
}

// TestKernelWriter_ReadsBackWritten: the writer reads back all objects as written. Writing them again changes nothing,
// and all but the shared ones can be removed, whether they exist or not.
func TestKernelWriter_ReadsBackWritten(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		objects := k.scaffold()
		k.write(creations(objects)...)
		k.expect(objects...)
		before := k.state()

		// Writing everything again without being sure changes nothing, not even hooks.
		var again []dataplane.Change
		for _, c := range creations(objects) {
			again = append(again, unsure(c))
		}
		k.write(again...)
		if after := k.state(); after != before {
			k.Errorf("writing again made of\n%s\nthis:\n%s", before, after)
		}

		// Everything can be removed, whether it exists or not, except for what the kubelet shares.
		var gone []dataplane.Change
		for _, o := range objects {
			gone = append(gone, unsure(changeOf(service.Node, o, nil)))
		}
		k.write(gone...)
		k.expect(k.shared()...)
		k.write(gone...)
		k.expect(k.shared()...)
	})
}

// TestKernelWriter_InsertsHooksInOrderOnTop: the writer inserts hooks in order above foreign rules.
func TestKernelWriter_InsertsHooksInOrderOnTop(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		k.run(k.tool.programs.iptables, "-t", "filter", "-A", "INPUT", "-p", "udp", "-j", "ACCEPT")
		k.write(creations(k.scaffold())...)
		s, err := readTable(k.Context(), k.tool, render.Filter, DefaultOwnership())
		if err != nil {
			k.Fatal(err)
		}
		var want []string
		for _, h := range render.HookRows() {
			if h.Table == render.Filter && h.Chain == "INPUT" {
				want = slices.Insert(want, 0, h.Text())
			}
		}
		want = append(want, "-p udp -j ACCEPT")
		if !slices.Equal(s.rules["INPUT"], want) {
			k.Errorf("INPUT:\n%s\nwant:\n%s", strings.Join(s.rules["INPUT"], "\n"), strings.Join(want, "\n"))
		}
	})
}

// TestKernelWriter_FilterTwiceInOneInput: one batch adds and removes reject rules of the filter table together with
// changes of the nat table.
func TestKernelWriter_FilterTwiceInOneInput(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		rejecting := chainObject(render.Filter, "KUBE-SERVICES", k.reject("1"), "-j KUBE-SVC-TX-01020300-24")
		old := chainObject(render.Filter, "KUBE-SVC-TX-01020300-24", k.reject("3"))
		green1 := chainObject(render.NAT, "KUBE-SVC-GREENAAAAAAAAAAA", "-p tcp "+k.dnat("2"))
		k.write(creations([]*dataplane.Object{rejecting, old, green1})...)

		rejected := chainObject(render.Filter, "KUBE-SERVICES", k.reject("2"), "-j KUBE-EXT-NODEPORTS")
		added := chainObject(render.Filter, "KUBE-EXT-NODEPORTS", k.reject("4"))
		blue1 := chainObject(render.NAT, "KUBE-SVC-BLUEAAAAAAAAAAAA", "-p tcp "+k.dnat("1"))
		k.write(
			changeOf(service.Node, rejecting, rejected),
			changeOf(service.Node, old, nil),
			changeOf(service.Node, nil, added),
			changeOf(green, green1, nil),
			changeOf(blue, nil, blue1),
		)
		k.expect(rejected, added, blue1)
	})
}

// TestKernelWriter_RejectedBatchKeepsRules: after a rejected batch, the kernel has the previous rules, and only the
// owner of the bad rule is a suspect.
func TestKernelWriter_RejectedBatchKeepsRules(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		before := chainObject(render.NAT, "KUBE-SVC-BLUEAAAAAAAAAAAA", "-p tcp "+k.dnat("1"))
		k.write(changeOf(blue, nil, before))
		for name, bad := range map[string]string{
			"found by the program": "-p tcp --dport nonsense -j ACCEPT",
			"found by the kernel":  "-j REJECT", // not valid in nat
			"a chain that is not":  "-j KUBE-SVC-NOWHEREAAAAAAAA",
		} {
			after := chainObject(render.NAT, "KUBE-SVC-BLUEAAAAAAAAAAAA", "-p tcp "+k.dnat("2"), bad)
			added := chainObject(render.NAT, "KUBE-SVC-GREENAAAAAAAAAAA", "-p tcp "+k.dnat("3"))
			receipt := k.attempt(changeOf(blue, before, after), changeOf(green, nil, added))
			if receipt.Outcome != dataplane.Rejected {
				k.Errorf("%s: %v", name, receipt)
			}
			for _, key := range receipt.Suspects {
				if key != blue {
					k.Errorf("%s: %v is suspect: %v", name, key, receipt.Err)
				}
			}
			if receipt.Certain[before.ID] != before {
				k.Errorf("%s: the old chain is reported as %+v", name, receipt.Certain[before.ID])
			}
			if now, ok := receipt.Certain[added.ID]; now != nil || !ok {
				k.Errorf("%s: the new chain is reported as %+v, %v", name, now, ok)
			}
			k.expect(before)
		}
	})
}

// TestKernelWriter_ReportsHalfLandedBatch: if the filter table was written and the nat table was rejected, the receipt
// lists the actual content of both.
func TestKernelWriter_ReportsHalfLandedBatch(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		rejecting := chainObject(render.Filter, "KUBE-SERVICES", k.reject("1"))
		k.write(changeOf(service.Node, nil, rejecting))

		// Filter grows, nat is rejected, filter does not shrink.
		rejected := chainObject(render.Filter, "KUBE-SERVICES", k.reject("2"))
		grown := chainObject(render.Filter, "KUBE-SERVICES", k.reject("2"), k.reject("1"))
		bad := chainObject(render.NAT, "KUBE-SVC-BLUEAAAAAAAAAAAA", "-j REJECT")
		receipt := k.attempt(changeOf(service.Node, rejecting, rejected), changeOf(blue, nil, bad))
		if receipt.Outcome != dataplane.Rejected {
			k.Errorf("receipt: %v", receipt)
		}
		if now := receipt.Certain[grown.ID]; now == nil || now.Body != grown.Body {
			k.Errorf("filter is reported as %+v, want %q", now, grown.Body)
		}
		if now, ok := receipt.Certain[bad.ID]; now != nil || !ok {
			k.Errorf("nat is reported as %+v, %v", now, ok)
		}
		k.expect(grown)
	})
}

// TestKernelWriter_BusyLockNamesHolder: while another process holds the lock, the outcome is busy without suspects, and
// the error names the holder.
func TestKernelWriter_BusyLockNamesHolder(t *testing.T) {
	// The nft variant has no lock.
	for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
		t.Run(family.String(), func(t *testing.T) {
			inNamespace(t, func() {
				k := newKernelTest(t, Legacy, family)
				hook := k.hooks(render.NAT)[0]
				k.write(creations([]*dataplane.Object{chainObject(render.NAT, hook.Refs()[0].Name), hook})...)
				holdLock(t)
				for name, c := range map[string]dataplane.Change{
					"chain": changeOf(blue, nil, chainObject(render.NAT, "KUBE-SVC-BLUEAAAAAAAAAAAA")),
					"hook":  changeOf(service.Node, hook, nil),
				} {
					receipt := k.attempt(c)
					if receipt.Outcome != dataplane.Busy || receipt.Suspects != nil {
						t.Errorf("%s: %v, suspects %v", name, receipt, receipt.Suspects)
					}
					// Saving takes no lock, so the content is certain.
					if len(receipt.Certain) != 1 || !dataplane.Same(receipt.Certain[c.ID], c.Before) {
						t.Errorf("%s: certain of %v", name, receipt.Certain)
					}
					if want := fmt.Sprintf("%s is held by ", LockPath()); !strings.Contains(receipt.Err.Error(), want) ||
						!strings.Contains(receipt.Err.Error(), fmt.Sprintf("(pid %d)", os.Getpid())) {
						t.Errorf("%s: %v; want the holder, %q and this process", name, receipt.Err, want)
					}
				}
				if exists, err := k.tool.HasChain(t.Context(), render.NAT, render.ChainCanary); err == nil {
					t.Errorf("with the lock held, HasChain says %v", exists)
				}
			})
		})
	}
}

// holdLock locks the lock file until release is called, or the test ends.
func holdLock(t *testing.T) (release func()) {
	t.Helper()
	lock, err := os.OpenFile(LockPath(), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	release = func() { _ = lock.Close() }
	t.Cleanup(release)
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return release
}

// TestKernelWriter_CountersSurvive: writes keep the counters of other rules.
func TestKernelWriter_CountersSurvive(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		loopback := "127.0.0.1"
		if k.family == service.IPv6 {
			loopback = "::1"
		}
		k.restore("*filter\n:KUBE-FORWARD - [0:0]\n:KUBE-SERVICES - [0:0]\n:OTHER - [0:0]\n" +
			"-A OUTPUT -j OTHER\n-A OUTPUT -j KUBE-FORWARD\n-A OTHER -p udp\n-A KUBE-FORWARD -p udp\nCOMMIT\n")
		for range 3 {
			conn, err := net.Dial("udp", net.JoinHostPort(loopback, "9"))
			if err != nil {
				k.Fatal(err)
			}
			// No program listens; the packet counts all the same.
			_, _ = conn.Write([]byte("x"))
			_ = conn.Close()
		}
		counters := func() string {
			lines := strings.Split(k.run(k.tool.programs.save, "-c", "-t", "filter"), "\n")
			return strings.Join(slices.DeleteFunc(lines, func(line string) bool {
				// No policies (see Exec.Restore), and not the chain that is written.
				return !strings.HasPrefix(line, "[") || strings.Contains(line, "-A KUBE-SERVICES")
			}), "\n")
		}
		before := counters()
		if strings.Count(before, "[3:") != 2 {
			k.Fatalf("the packets were not counted:\n%s", before)
		}
		k.write(changeOf(service.Node, nil, chainObject(render.Filter, "KUBE-SERVICES", k.reject("1"))))
		if after := counters(); after != before {
			k.Errorf("counters before:\n%s\nafter:\n%s", before, after)
		}
	})
}

// TestKernelSave_MakesNoTables: reading creates no tables.
func TestKernelSave_MakesNoTables(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		k.expect()
		if printed := k.run(k.tool.programs.save); strings.Contains(printed, "*") {
			k.Errorf("after reading, tables exist:\n%s", printed)
		}
	})
}

// TestKernelWriter_EndedContext: a write whose context has ended writes nothing, and its outcome is unknown.
func TestKernelWriter_EndedContext(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		ctx, cancel := context.WithCancel(k.Context())
		cancel()
		receipt := k.writer.Write(ctx, &dataplane.Batch{Changes: creations(k.scaffold())})
		if receipt.Outcome != dataplane.Unknown || len(receipt.Certain) != 0 {
			k.Errorf("receipt: %v, certain of %v", receipt, receipt.Certain)
		}
		k.expect()
	})
}

// TestKernelWriter_AllHookCopiesGo: removing a hook removes all its copies.
func TestKernelWriter_AllHookCopiesGo(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		hook := k.hooks(render.NAT)[0]
		place, err := render.ParseHook(hook.ID)
		if err != nil {
			k.Fatal(err)
		}
		k.write(creations([]*dataplane.Object{chainObject(render.NAT, hook.Refs()[0].Name), hook})...)
		args := append([]string{"-t", "nat", "-A", place.Chain}, place.Rule...)
		for range 3 {
			if out, err := exec.Command(k.tool.programs.iptables, args...).CombinedOutput(); err != nil {
				k.Fatalf("%v: %s", err, out)
			}
		}
		k.write(changeOf(service.Node, hook, nil), changeOf(service.Node, chainObject(render.NAT, hook.Refs()[0].Name), nil))
		k.expect()
	})
}

// TestKernelWriter_KubeletRulesSurvive: the writer neither empties nor removes the kubelet's chain.
func TestKernelWriter_KubeletRulesSurvive(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		k.restore("*filter\n:KUBE-FIREWALL - [0:0]\n-A KUBE-FIREWALL " + k.dst("8") + " -j DROP\n-A INPUT -j KUBE-FIREWALL\nCOMMIT\n")
		before := k.state()
		k.write(unsure(changeOf(service.Node, nil, chainObject(render.Filter, render.ChainFirewall))))
		k.write(changeOf(service.Node, chainObject(render.Filter, render.ChainFirewall), nil))
		if after := k.state(); after != before {
			k.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
	})
}

// TestKernelWriter_AgreesWithText: the writer and the loaded text of the same objects, each in a separate namespace,
// lead to the same rules.
func TestKernelWriter_AgreesWithText(t *testing.T) {
	onFamilies(t, service.Families[:], func(k *kernelTest) {
		objects := rendertest.IPTablesNode(k.family, rendertest.IPTablesTrees(k.family))
		text, err := Text(objects)
		if err != nil {
			k.Fatal(err)
		}
		changes := make([]dataplane.Change, 0, len(objects))
		for i := range objects {
			changes = append(changes, dataplane.Change{ID: objects[i].ID, After: &objects[i]})
		}
		k.write(changes...)
		written := k.state()

		// With --noflush other programs keep their rules; here they have none.
		for _, args := range [][]string{{"--noflush"}, nil} {
			namespace, err := netns.New("loaded")
			if err != nil {
				k.Fatal(err)
			}
			load := exec.Command(k.tool.programs.restore, args...)
			load.Stdin = strings.NewReader(text)
			if said, err := runIn(namespace, load); err != nil {
				k.Fatalf("%s %v: %v: %s", k.tool.programs.restore, args, err, said)
			}
			var loaded string
			if err := namespace.Do(func() error { loaded = k.state(); return nil }); err != nil {
				k.Fatal(err)
			}
			if loaded != written {
				k.Errorf("%v: the writer wrote\n%s\nand the text made\n%s", args, written, loaded)
			}
			if err := namespace.Close(); err != nil {
				k.Error(err)
			}
		}
	})
}

// runIn returns the output of a program.
func runIn(namespace *netns.Namespace, cmd *exec.Cmd) (string, error) {
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	err := netnstest.Run(namespace, cmd)
	return said.String(), err
}
