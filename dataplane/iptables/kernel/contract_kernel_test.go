// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
	"github.com/sluice-proxy/sluice/test/writertest"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestWriterContract runs the cases of [writertest] with iptables-nft, and in make test-all for both variants and
// families.
func TestWriterContract(t *testing.T) {
	for _, variant := range testenv.Variants(kernel.NFT, kernel.Legacy) {
		for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
			t.Run(string(variant)+"/"+family.String(), func(t *testing.T) { writertest.Run(t, harness(family, variant, asItIs)) })
		}
	}
}

// insideTool runs the commands of a tool that the cases need inside a network namespace.
type insideTool struct {
	kernel.Tool
	namespace *netns.Namespace
}

func (i insideTool) Restore(ctx context.Context, input []byte) error {
	return i.namespace.Do(func() error { return i.Tool.Restore(ctx, input) })
}

func (i insideTool) Save(ctx context.Context, table render.Table) ([]byte, error) {
	var saved []byte
	err := i.namespace.Do(func() error {
		var err error
		saved, err = i.Tool.Save(ctx, table)
		return err
	})
	return saved, err
}

func (i insideTool) EnsureHook(ctx context.Context, table render.Table, chain string, rule []string) error {
	return i.namespace.Do(func() error { return i.Tool.EnsureHook(ctx, table, chain, rule) })
}

func (i insideTool) RemoveHook(ctx context.Context, table render.Table, chain string, rule []string) error {
	return i.namespace.Do(func() error { return i.Tool.RemoveHook(ctx, table, chain, rule) })
}

func (i insideTool) HasChain(ctx context.Context, table render.Table, chain string) (exists bool, err error) {
	err = i.namespace.Do(func() (err error) { exists, err = i.Tool.HasChain(ctx, table, chain); return err })
	return exists, err
}

// harness is the iptables backend with the real programs of a variant, on a node of network
// namespaces. Writers use the tool that wrap makes of the real one.
func harness(family service.Family, variant kernel.Variant, wrap func(kernel.Tool) kernel.Tool) writertest.Harness {
	return writertest.Harness{
		Family:    family,
		Renderer:  render.NewRenderer(family, render.Options{MasqueradeBit: 14, RandomFully: true}),
		NewLayout: func() dataplane.Layout { return render.NewLayout(family) },
		Open: func(t *testing.T, world writertest.Fixture) writertest.Node {
			t.Helper()
			testenv.NeedsTool(t, "iptables-nft", "iptables")
			programs, err := kernel.NewExec(t.Context(), kernel.ExecConfig{Family: family, Variant: variant})
			if err != nil {
				t.Fatalf("install the Debian package iptables: %v", err)
			}
			network := writertest.NewNetwork(t, world)
			tool := wrap(insideTool{programs, network.Node()})
			return writertest.Node{
				NewWriter: func() dataplane.Writer {
					return kernel.NewWriter(family, tool, kernel.WriterConfig{}).Contract()
				},
				Network: network,
				Meddler: meddler{tool: tool, family: family},
			}
		},
	}
}

func asItIs(tool kernel.Tool) kernel.Tool { return tool }

// meddler does its damage with the tools that the backend uses.
type meddler struct {
	tool   kernel.Tool
	family service.Family
}

var tables = []render.Table{render.Mangle, render.Filter, render.NAT}

// Poison implements [writertest.Meddler]: it adds a jump to a chain that does not exist.
func (m meddler) Poison(object dataplane.Object) (dataplane.Object, bool) {
	if !slices.Contains(tables, render.Table(object.ID.Container)) {
		return object, false // a hook
	}
	object.Body = strings.TrimPrefix(object.Body+"\n-j POISON", "\n")
	return object, true
}

// Damage implements [writertest.Meddler]: it removes a hook, or the rules of a chain, or an empty chain that
// nothing jumps to.
func (m meddler) Damage(t *testing.T, id dataplane.ID) bool {
	t.Helper()
	for _, hook := range render.HookRows() {
		if hook.ID() == id {
			check(t, m.tool.RemoveHook(t.Context(), hook.Table, hook.Chain, hook.Rule))
			return true
		}
	}
	saved := m.save(t, render.Table(id.Container))
	switch {
	case strings.Contains(saved, "\n-A "+id.Name+" "):
		m.restore(t, id.Container, "-F "+id.Name)
	case !strings.Contains(saved, "-j "+id.Name+"\n"):
		m.restore(t, id.Container, "-X "+id.Name)
	default:
		return false
	}
	return true
}

func (m meddler) save(t *testing.T, table render.Table) string {
	t.Helper()
	saved, err := m.tool.Save(t.Context(), table)
	check(t, err)
	return string(saved)
}

func (m meddler) restore(t *testing.T, table string, lines ...string) {
	t.Helper()
	input := fmt.Sprintf("*%s\n%s\nCOMMIT\n", table, strings.Join(lines, "\n"))
	check(t, m.tool.Restore(t.Context(), []byte(input)))
}

// Wipe implements [writertest.Meddler].
func (m meddler) Wipe(t *testing.T) {
	t.Helper()
	for _, table := range tables {
		var flush, remove []string
		for line := range strings.Lines(m.save(t, table)) {
			chain, isChain := strings.CutPrefix(line, ":")
			if !isChain {
				continue
			}
			name, policy, _ := strings.Cut(chain, " ")
			flush = append(flush, "-F "+name)
			if strings.HasPrefix(policy, "-") {
				remove = append(remove, "-X "+name)
			}
		}
		m.restore(t, string(table), append(flush, remove...)...)
	}
}

// planted returns the lines of other programs: chains of the kubelet, a chain with a name like
// ours, and a rule at each end of a built-in chain. Where Sluice wants nothing in KUBE-FIREWALL,
// the kubelet's rules in it stay, too.
func (m meddler) planted(table render.Table) []string {
	from := "198.51.100.0/24"
	if m.family == service.IPv6 {
		from = "2001:db8:6::/48"
	}
	lines := []string{
		":FOREIGN - [0:0]", ":KUBE-KUBELET-CANARY - [0:0]", ":KUBE-MARK-DROP - [0:0]",
		"-A FOREIGN -s " + from + " -j RETURN",
		"-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000",
		"-A OUTPUT -j FOREIGN",
		"-A OUTPUT -s " + from + " -j ACCEPT",
	}
	if m.family == service.IPv6 && table == render.Filter {
		lines = append(lines, ":KUBE-FIREWALL - [0:0]", "-A KUBE-FIREWALL -s "+from+" -j DROP")
	}
	return lines
}

// Plant implements [writertest.Meddler].
func (m meddler) Plant(t *testing.T) {
	t.Helper()
	for _, table := range tables {
		m.restore(t, string(table), m.planted(table)...)
	}
}

// CheckPlanted implements [writertest.Meddler].
func (m meddler) CheckPlanted(t *testing.T) {
	t.Helper()
	for _, table := range tables {
		saved := m.save(t, table)
		for _, line := range m.planted(table) {
			if strings.Count(saved, line+"\n") != 1 {
				t.Errorf("%s: %q is gone or doubled:\n%s", table, line, saved)
			}
		}
	}
}
