package backend

import (
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/ipvs"
)

// IPVSTerritory is what IPVS mode has in iptables, Sluice's or kube-proxy's.
func IPVSTerritory() iptables.Territory {
	t := iptables.Territory{
		Owns: func(table iptables.Table, chain string) bool { return ipvs.OwnsChain(string(table), chain) },
	}
	for _, h := range ipvs.HookRows() {
		table := iptables.Table(h.Table)
		t.Hooks = append(t.Hooks, iptables.Hook{
			Row: h.Row, Table: table, Chain: h.Chain, Target: h.Target,
			Rule: []string{"-m", "comment", "--comment", h.Comment, "-j", h.Target},
		})
	}
	return t
}

// AllTerritories is what Sluice and kube-proxy have in iptables, whatever their mode.
func AllTerritories() iptables.Territory { return iptables.OwnTerritory().With(IPVSTerritory()) }
