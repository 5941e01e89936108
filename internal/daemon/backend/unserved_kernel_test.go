// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"slices"
	"strings"
	"testing"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/service"
)

// occupied is a chain of another program that iptables cannot write.
const occupied = "nft 'add table ip nat; add chain ip nat POSTROUTING { type nat hook postrouting priority 50; }'"

// TestKernelIPTables_UnprintableForeignRules: a start serves both families alongside foreign rules that iptables cannot
// print.
func TestKernelIPTables_UnprintableForeignRules(t *testing.T) {
	n := newNode(t)
	n.sh("iptables-nft -t nat -A POSTROUTING; nft add rule ip nat POSTROUTING ip saddr 10.9.0.0/16 masquerade")
	domains, err := n.domains(IPTablesOptions{Variant: "nft", MasqueradeBit: 14})
	if err != nil {
		t.Fatal(err)
	}
	if got := n.names(domains); !slices.Equal(got, []string{"iptables-nft/IPv4", "iptables-nft/IPv6"}) {
		t.Errorf("got %v, want both families", got)
	}
}

// TestKernelLeftovers_UnservedFamilyKept: a mode that serves one family removes no rules of the other.
func TestKernelLeftovers_UnservedFamilyKept(t *testing.T) {
	n := newNode(t)
	n.sh(occupied + "; nft add table ip kube-proxy; nft add table ip6 kube-proxy; ip6tables-nft -t nat -N KUBE-IPVS-X")
	domains, err := n.domains(IPTablesOptions{Variant: "nft", MasqueradeBit: 14})
	if err != nil {
		t.Fatal(err)
	}
	if got := n.names(domains); !slices.Equal(got, []string{"iptables-nft/IPv6"}) {
		t.Errorf("got %v, want IPv6 alone", got)
	}
	check := n.namespace.Do(func() error {
		if asked, err := HasIPTables(n.Context(), service.IPv4, iptkernel.NFT); asked || err == nil {
			t.Errorf("a preflight says that iptables can serve IPv4")
		}
		_, err := (&Sweep{Keep: Keep{IPTables: true}, Variant: iptkernel.NFT, Families: []service.Family{service.IPv6}}).Run(n.Context())
		return err
	})
	if check != nil {
		t.Fatal(check)
	}
	if tables := n.sh("nft list tables"); !strings.Contains(tables, "table ip kube-proxy") || strings.Contains(tables, "ip6 kube-proxy") {
		t.Errorf("got\n%s, want the table of IPv4 alone", tables)
	}
}
