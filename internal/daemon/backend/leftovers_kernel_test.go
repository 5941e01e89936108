// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"strings"
	"testing"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/service"
)

// ipvsRules are some rules of IPVS mode, including those that iptables mode shares.
const ipvsRules = `iptables-nft-restore <<END
*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODE-PORT - [0:0]
:KUBE-MARK-MASQ - [0:0]
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT
-A KUBE-NODE-PORT -j KUBE-MARK-MASQ
COMMIT
*filter
:KUBE-IPVS-FILTER - [0:0]
:MINE - [0:0]
-A INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER
-A INPUT -j MINE
COMMIT
END`

// rulesOfServices adds rules of iptables mode to table nat.
const rulesOfServices = `iptables-nft-restore --noflush <<END
*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-SVC-A - [0:0]
-A KUBE-SERVICES -d 10.0.0.1/32 -j KUBE-SVC-A
-A KUBE-SERVICES -j KUBE-NODEPORTS
COMMIT
END`

// keep has what stays in each mode.
var keep = map[config.Mode]Keep{
	config.ModeNFTables: {NFTables: true}, config.ModeIPTables: {IPTables: true}, config.ModeIPVS: {IPVS: true}, config.ModeUserspace: {Userspace: true},
}

func (n *node) leave(mode config.Mode) string {
	n.Helper()
	err := n.namespace.Do(func() error {
		left, err := (&Sweep{Keep: keep[mode], Variant: iptkernel.NFT, Families: service.Families[:]}).Run(n.Context())
		for i := range left {
			left[i].Log(n.log)
		}
		return err
	})
	if err != nil {
		n.Fatal(err)
	}
	return n.sh("iptables-nft-save")
}

// TestKernelLeftovers_AfterIPVSMode: the next mode removes the rules of IPVS mode; iptables mode keeps those that both
// share.
func TestKernelLeftovers_AfterIPVSMode(t *testing.T) {
	for mode, stays := range map[config.Mode]bool{config.ModeNFTables: false, config.ModeIPTables: true} {
		t.Run(string(mode), func(t *testing.T) {
			n := newNode(t)
			n.sh(ipvsRules)
			n.sh(rulesOfServices)
			rules := n.leave(mode)
			if strings.Contains(rules, "KUBE-NODE-PORT ") || strings.Contains(rules, "KUBE-IPVS") || !strings.Contains(rules, "-A INPUT -j MINE") {
				t.Errorf("got\n%s", rules)
			}
			for _, shared := range []string{"-A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES", "KUBE-SVC-A", ":KUBE-MARK-MASQ"} {
				if strings.Contains(rules, shared) != stays {
					t.Errorf("%q: stays %v\n%s", shared, !stays, rules)
				}
			}
			if said := n.lines.FilterMessage("rules of another mode removed").Len(); said != 1 {
				t.Errorf("said %d times, want once: %v", said, n.lines.All())
			}
		})
	}
}

// TestKernelLeftovers_AfterIPTablesMode: IPVS mode removes the chains of iptables mode, except for those that it has
// rewritten.
func TestKernelLeftovers_AfterIPTablesMode(t *testing.T) {
	n := newNode(t)
	n.sh(rulesOfServices)
	n.sh(strings.Replace(ipvsRules, "restore", "restore --noflush", 1))
	rules := n.leave(config.ModeIPVS)
	if strings.Contains(rules, "KUBE-SVC-A") || strings.Contains(rules, "KUBE-NODEPORTS") {
		t.Errorf("rules of iptables mode are left:\n%s", rules)
	}
	for _, own := range []string{"-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT", "-j KUBE-IPVS-FILTER", "-A OUTPUT -m comment"} {
		if !strings.Contains(rules, own) {
			t.Errorf("%q has gone:\n%s", own, rules)
		}
	}
}

// TestKernelLeftovers_OwnRulesKept: a dry sweep lists the rules of the serving mode as kept, and a real one does not
// touch them.
func TestKernelLeftovers_OwnRulesKept(t *testing.T) {
	n := newNode(t)
	n.sh("nft add table ip kube-proxy")
	for _, dry := range []bool{true, false} {
		err := n.namespace.Do(func() error {
			left, err := (&Sweep{Dry: dry, Keep: Keep{NFTables: true}, WithoutTables: true, Families: service.Families[:]}).Run(n.Context())
			kept := 0
			for i := range left {
				if left[i].Any() {
					t.Errorf("dry %t: %s has %s", dry, left[i].Of, left[i].What)
				}
				if left[i].Kept && left[i].What != "" {
					kept++
				}
			}
			if (kept == 1) != dry {
				t.Errorf("dry %t: %d are kept: %+v", dry, kept, left)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if tables := n.sh("nft list tables"); !strings.Contains(tables, "kube-proxy") {
		t.Error("the table is gone")
	}
}
