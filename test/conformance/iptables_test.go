package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/service"
)

// iptablesHarness is the iptables backend in one family; open makes its nodes.
func iptablesHarness(family service.Family, open func(*testing.T, Fixture) Node) Harness {
	return Harness{
		Family:            family,
		Renderer:          iptables.NewRenderer(family, iptables.Options{MasqueradeBit: 14, RandomFully: true}),
		NewLayout:         func() dataplane.Layout { return iptables.NewLayout(family) },
		Open:              open,
		LoopbackNodePorts: true,
	}
}

// iptablesMeddler does its damage with the tools that the backend uses.
type iptablesMeddler struct {
	tool   iptables.Tool
	family service.Family
}

var iptablesTables = []iptables.Table{iptables.Mangle, iptables.Filter, iptables.NAT}

// Poison implements [Meddler]: it adds a jump to a chain that does not exist.
func (m iptablesMeddler) Poison(object dataplane.Object) (dataplane.Object, bool) {
	if !slices.Contains(iptablesTables, iptables.Table(object.ID.Container)) {
		return object, false // a hook
	}
	object.Body = strings.TrimPrefix(object.Body+"\n-j POISON", "\n")
	return object, true
}

// Damage implements [Meddler]: it removes a hook, or the rules of a chain, or an empty chain that
// nothing jumps to.
func (m iptablesMeddler) Damage(t *testing.T, id dataplane.ID) bool {
	t.Helper()
	for _, hook := range iptables.HookRows() {
		if hook.ID() == id {
			check(t, m.tool.RemoveHook(t.Context(), hook.Table, hook.Chain, hook.Rule))
			return true
		}
	}
	saved := m.save(t, iptables.Table(id.Container))
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

func (m iptablesMeddler) save(t *testing.T, table iptables.Table) string {
	t.Helper()
	saved, err := m.tool.Save(t.Context(), table)
	check(t, err)
	return string(saved)
}

func (m iptablesMeddler) restore(t *testing.T, table string, lines ...string) {
	t.Helper()
	input := fmt.Sprintf("*%s\n%s\nCOMMIT\n", table, strings.Join(lines, "\n"))
	check(t, m.tool.Restore(t.Context(), []byte(input)))
}

// Wipe implements [Meddler].
func (m iptablesMeddler) Wipe(t *testing.T) {
	t.Helper()
	for _, table := range iptablesTables {
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
func (m iptablesMeddler) planted(table iptables.Table) []string {
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
	if m.family == service.IPv6 && table == iptables.Filter {
		lines = append(lines, ":KUBE-FIREWALL - [0:0]", "-A KUBE-FIREWALL -s "+from+" -j DROP")
	}
	return lines
}

// Plant implements [Meddler].
func (m iptablesMeddler) Plant(t *testing.T) {
	t.Helper()
	for _, table := range iptablesTables {
		m.restore(t, string(table), m.planted(table)...)
	}
}

// CheckPlanted implements [Meddler].
func (m iptablesMeddler) CheckPlanted(t *testing.T) {
	t.Helper()
	for _, table := range iptablesTables {
		saved := m.save(t, table)
		for _, line := range m.planted(table) {
			if strings.Count(saved, line+"\n") != 1 {
				t.Errorf("%s: %q is gone or doubled:\n%s", table, line, saved)
			}
		}
	}
}
