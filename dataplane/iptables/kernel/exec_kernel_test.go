// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// kernelTest is one run of a test against the real programs, in a network namespace and with a lock
// file of its own.
type kernelTest struct {
	*testing.T
	tool    *Exec
	writer  *Writer
	family  service.Family
	variant Variant
}

// onKernels runs a test of logic that is the same for all programs: with iptables-nft, and in make test-all with each
// variant and family. Each runs on a thread inside a fresh namespace.
func onKernels(t *testing.T, body func(k *kernelTest)) {
	onFamilies(t, testenv.Variants(service.IPv4, service.IPv6), body)
}

// onFamilies runs a test in these families. make test-all adds the legacy variant.
func onFamilies(t *testing.T, families []service.Family, body func(k *kernelTest)) {
	for _, variant := range testenv.Variants(NFT, Legacy) {
		for _, family := range families {
			t.Run(string(variant)+" "+family.String(), func(t *testing.T) {
				inNamespace(t, func() { body(newKernelTest(t, variant, family)) })
			})
		}
	}
}

func newKernelTest(t *testing.T, variant Variant, family service.Family) *kernelTest {
	t.Helper()
	tool, err := NewExec(t.Context(), ExecConfig{Family: family, Variant: variant, LockWait: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return &kernelTest{T: t, tool: tool, writer: NewWriter(family, tool, WriterConfig{}), family: family, variant: variant}
}

// inNamespace runs body on a thread inside a fresh network namespace.
func inNamespace(t *testing.T, body func()) {
	t.Helper()
	testenv.NeedsRoot(t)
	testenv.NeedsTool(t, "iptables-nft", "iptables")
	t.Setenv(lockEnv, filepath.Join(t.TempDir(), "xtables.lock"))
	namespace, err := netns.New(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close() // the namespace ends with the process at the latest
	if err := namespace.Do(func() error { body(); return nil }); err != nil {
		t.Fatal(err) // t.Fatal in body, too, ends here
	}
}

// run runs a program in the namespace.
func (k *kernelTest) run(name string, args ...string) string {
	k.Helper()
	printed, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		k.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, printed)
	}
	return string(printed)
}

// restore writes rules that are not ours.
func (k *kernelTest) restore(text string) {
	k.Helper()
	if err := k.tool.Restore(k.Context(), []byte(text)); err != nil {
		k.Fatal(err)
	}
}

// state returns everything in all tables, without counters and comments.
func (k *kernelTest) state() string {
	k.Helper()
	var b strings.Builder
	for _, table := range [...]render.Table{render.Mangle, render.Filter, render.NAT} {
		s, err := readTable(k.Context(), k.tool, table, DefaultOwnership())
		if err != nil {
			k.Fatal(err)
		}
		b.WriteString("*" + string(table) + "\n")
		for _, chain := range s.chains {
			b.WriteString(":" + chain + "\n")
			for _, rule := range s.rules[chain] {
				b.WriteString("-A " + chain + " " + rule + "\n")
			}
		}
	}
	return b.String()
}

// write writes a batch that must land.
func (k *kernelTest) write(changes ...dataplane.Change) {
	k.Helper()
	if receipt := k.attempt(changes...); receipt.Outcome != dataplane.Landed {
		k.Fatal(receipt)
	}
}

func (k *kernelTest) attempt(changes ...dataplane.Change) dataplane.Receipt {
	return k.writer.Write(k.Context(), &dataplane.Batch{Number: 1, Changes: changes})
}

// read returns what the writer reads.
func (k *kernelTest) read() map[dataplane.ID]dataplane.Object {
	k.Helper()
	objects, err := k.writer.Read(k.Context())
	if err != nil {
		k.Fatal(err)
	}
	byID := make(map[dataplane.ID]dataplane.Object, len(objects))
	for _, o := range objects {
		byID[o.ID] = o
	}
	return byID
}

// expect compares what the writer reads with what should be there.
func (k *kernelTest) expect(want ...*dataplane.Object) {
	k.Helper()
	got := k.read()
	for _, w := range want {
		if now, ok := got[w.ID]; !ok || now.Body != w.Body {
			k.Errorf("%v reads as\n%q, %v; want\n%q", w.ID, now.Body, ok, w.Body)
		}
		delete(got, w.ID)
	}
	for id := range got {
		k.Errorf("%v was read and should not be there", id)
	}
}

// dst matches a destination.
func (k *kernelTest) dst(n string) string {
	if k.family == service.IPv6 {
		return "-d fd00::" + n + "/128"
	}
	return "-d 10.0.0." + n + "/32"
}

// dnat is a target. Its rule needs a protocol.
func (k *kernelTest) dnat(n string) string {
	if k.family == service.IPv6 {
		return "-j DNAT --to-destination [fd00:1::" + n + "]:80"
	}
	return "-j DNAT --to-destination 10.1.0." + n + ":80"
}

// reject is a rejecting rule as iptables-save prints it.
func (k *kernelTest) reject(n string) string {
	if k.family == service.IPv6 {
		return k.dst(n) + " -j REJECT --reject-with icmp6-port-unreachable"
	}
	return k.dst(n) + " -j REJECT --reject-with icmp-port-unreachable"
}

// hooks returns all our hooks of a table.
func (k *kernelTest) hooks(table render.Table) []*dataplane.Object {
	var objects []*dataplane.Object
	for _, h := range render.HookRows() {
		if h.Table == table {
			object := h.Object()
			objects = append(objects, &object)
		}
	}
	return objects
}
