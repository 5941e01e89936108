package iptables

import (
	"net/netip"
	"testing"
)

func TestRuleText(t *testing.T) {
	for _, test := range []struct {
		rule rule
		want string
	}{
		{rule{}, ""},
		{rule{target: "DROP"}, "-j DROP"},
		{rule{comment: comment{subject: "plain-word_1"}}, "-m comment --comment plain-word_1"},
		{rule{comment: comment{subject: "ns/svc"}}, `-m comment --comment "ns/svc"`},
		{rule{comment: comment{"a ", "b", ""}, target: "X"}, `-m comment --comment "a b" -j X`},
		{
			rule{source: addrMatch{netip.MustParsePrefix("10.1.2.3/8"), true}, target: "X"},
			"! -s 10.0.0.0/8 -j X",
		},
		{
			rule{
				source: host(netip.MustParseAddr("fd00::1")), destination: host(netip.MustParseAddr("fd00::2")),
				input: inputMatch{"cali+", true}, protocol: "udp", comment: comment{subject: "c"},
				match: "-m addrtype --src-type LOCAL", port: 53, target: "X",
			},
			"-s fd00::1/128 -d fd00::2/128 ! -i cali+ -p udp -m comment --comment c" +
				" -m addrtype --src-type LOCAL -m udp --dport 53 -j X",
		},
	} {
		if got := string(test.rule.appendTo(nil)); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}
