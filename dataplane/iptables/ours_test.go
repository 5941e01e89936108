package iptables

import "testing"

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
