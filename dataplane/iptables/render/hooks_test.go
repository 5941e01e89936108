// SPDX-License-Identifier: Apache-2.0

package render

import (
	"slices"
	"strings"
	"testing"
)

func TestOwnsChain(t *testing.T) {
	for _, test := range []struct {
		table Table
		name  string
		want  bool
	}{
		{NAT, "KUBE-SERVICES", true},
		{NAT, "KUBE-SVC-XPGD46QRK7WJZT7O", true},
		{NAT, "KUBE-SVC-TS-AC1E0000-20", true},
		{NAT, "KUBE-SVC-HAIRPIN", true},
		{NAT, "KUBE-SVL-XPGD46QRK7WJZT7O", true},
		{NAT, "KUBE-SEP-SXIVWICOYRO3J4NJ", true},
		{NAT, "KUBE-FW-XPGD46QRK7WJZT7O", true},
		{NAT, "KUBE-EXT-XPGD46QRK7WJZT7O", true},
		{NAT, "KUBE-PROXY-CANARY", true},
		{NAT, "KUBE-FORWARD", false},
		{NAT, "KUBE-MARK-DROP", false},
		{NAT, "KUBE-KUBELET-CANARY", false},
		{NAT, "POSTROUTING", false},
		{Filter, "KUBE-EXTERNAL-SERVICES", true},
		{Filter, "KUBE-EXT-NODEPORTS", true},
		{Filter, "KUBE-SVC-TX-01020300-24", true},
		{Filter, "KUBE-PROXY-FIREWALL", true},
		{Filter, "KUBE-SEP-SXIVWICOYRO3J4NJ", false},
		{Filter, "KUBE-FIREWALL", false},
		{Filter, "KUBE-POSTROUTING", false},
		{Mangle, "KUBE-PROXY-CANARY", true},
		{Mangle, "KUBE-IPTABLES-HINT", false},
		{Mangle, "KUBE-SERVICES", false},
		{"raw", "KUBE-SERVICES", false},
	} {
		if got := OwnsChain(test.table, test.name); got != test.want {
			t.Errorf("OwnsChain(%s, %s) = %t, want %t", test.table, test.name, got, test.want)
		}
	}
	if !Shared("KUBE-FIREWALL") || Shared("KUBE-FORWARD") {
		t.Error("KUBE-FIREWALL alone is shared")
	}
}

// TestHookRows compares the hooks with those of kube-proxy v1.37, word for word.
func TestHookRows(t *testing.T) {
	const (
		isNew   = "-m conntrack --ctstate NEW "
		remark  = "-m comment --comment "
		portals = remark + `"kubernetes service portals" -j KUBE-SERVICES`
		outside = isNew + remark + `"kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES`
		balance = isNew + remark + `"kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL`
	)
	want := []string{
		"01 filter/INPUT " + outside,
		"02 filter/FORWARD " + outside,
		"03 filter/INPUT " + remark + `"kubernetes health check service ports" -j KUBE-NODEPORTS`,
		"04 filter/FORWARD " + isNew + portals,
		"05 filter/OUTPUT " + isNew + portals,
		"06 filter/FORWARD " + remark + `"kubernetes forwarding rules" -j KUBE-FORWARD`,
		"07 filter/INPUT " + balance,
		"08 filter/OUTPUT " + balance,
		"09 filter/FORWARD " + balance,
		"10 nat/OUTPUT " + portals,
		"11 nat/PREROUTING " + portals,
		"12 nat/POSTROUTING " + remark + `"kubernetes postrouting rules" -j KUBE-POSTROUTING`,
		"13 filter/INPUT -j KUBE-FIREWALL",
		"14 filter/OUTPUT -j KUBE-FIREWALL",
	}
	var got []string
	for _, h := range HookRows() {
		row, text, _ := strings.Cut(h.ID().Name, " ")
		got = append(got, row+" "+h.ID().Container+" "+text)
		if o := h.Object(); o.Body != text || o.Refs()[0].Container != string(h.Table) || o.Refs()[0].Name != h.Target {
			t.Errorf("row %d: object %+v", h.Row, o)
		}
		if !slices.Equal(h.Rule[len(h.Rule)-2:], []string{"-j", h.Target}) {
			t.Errorf("row %d: rule %q does not jump to %s", h.Row, h.Rule, h.Target)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestHookRows_Order: on an empty node, where each hook is inserted above the earlier ones, the chains have
// kube-proxy's order.
func TestHookRows_Order(t *testing.T) {
	chains := map[string][]string{}
	for _, h := range HookRows() {
		chain := string(h.Table) + "/" + h.Chain
		chains[chain] = slices.Insert(chains[chain], 0, h.Target)
	}
	for chain, want := range map[string]string{
		"filter/INPUT":    "KUBE-FIREWALL KUBE-PROXY-FIREWALL KUBE-NODEPORTS KUBE-EXTERNAL-SERVICES",
		"filter/FORWARD":  "KUBE-PROXY-FIREWALL KUBE-FORWARD KUBE-SERVICES KUBE-EXTERNAL-SERVICES",
		"filter/OUTPUT":   "KUBE-FIREWALL KUBE-PROXY-FIREWALL KUBE-SERVICES",
		"nat/OUTPUT":      "KUBE-SERVICES",
		"nat/PREROUTING":  "KUBE-SERVICES",
		"nat/POSTROUTING": "KUBE-POSTROUTING",
	} {
		if got := strings.Join(chains[chain], " "); got != want {
			t.Errorf("%s: %s, want %s", chain, got, want)
		}
	}
}
