// SPDX-License-Identifier: Apache-2.0

package nftmodel

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// everywhere has a filter and, where there can be one, a nat chain at each hook,
// each with a rule that matches.
func everywhere() []message {
	names := map[uint32]string{
		unix.NF_INET_PRE_ROUTING: "prerouting", unix.NF_INET_LOCAL_IN: "input", unix.NF_INET_FORWARD: "forward",
		unix.NF_INET_LOCAL_OUT: "output", unix.NF_INET_POST_ROUTING: "postrouting",
	}
	messages := []message{addTable()}
	for number, name := range names {
		for _, c := range []struct {
			name, kind string
			priority   int32
		}{
			{"late-" + name, "filter", 200}, {"filter-" + name, "filter", 0}, {"early-" + name, "filter", -150}, {"nat-" + name, "nat", 0},
		} {
			if c.kind == "nat" && number == unix.NF_INET_FORWARD {
				continue
			}
			messages = append(messages, addChain(c.name, hooked(c.kind, number, c.priority)), addRule(c.name, ex("counter")))
		}
	}
	return messages
}

// TestWalk_HooksInOrder: the model calls the chains of all hooks in the kernel's order.
func TestWalk_HooksInOrder(t *testing.T) {
	k := NewKernel()
	k.SetAddresses(netip.MustParseAddr("192.168.0.2"))
	must(t, k, unix.NFPROTO_IPV4, everywhere()...)
	prerouting := "early-prerouting nat-prerouting filter-prerouting late-prerouting "
	input := "early-input filter-input nat-input late-input"
	forward := "early-forward filter-forward late-forward "
	output := "early-output nat-output filter-output late-output "
	postrouting := "early-postrouting filter-postrouting nat-postrouting late-postrouting"
	again := " early-prerouting filter-prerouting late-prerouting early-input filter-input late-input"
	for _, c := range []struct{ from, to, in, want string }{
		{"203.0.113.10:1", "172.30.0.41:80", "eth0", prerouting + forward + postrouting},
		{"203.0.113.10:1", "192.168.0.2:80", "eth0", prerouting + input},
		{"192.168.0.2:1", "172.30.0.41:80", "", output + postrouting},
		{"192.168.0.2:1", "192.168.0.2:80", "", output + postrouting + again},
		{"127.0.0.1:1", "127.0.0.1:80", "", output + postrouting + again},
	} {
		p := packet(c.from, c.to)
		p.In = c.in
		var chains []string
		for _, step := range k.Trace(p, never).Steps {
			chains = append(chains, step.Chain)
		}
		if got := strings.Join(chains, " "); got != c.want {
			t.Errorf("from %s to %s by %q:\n%s, want\n%s", c.from, c.to, c.in, got, c.want)
		}
	}
}

// TestWalk_NATChainsUntilFirstTranslates: NAT chains of one hook are called in the order of their priorities, those of
// one priority in the reverse order of registration, and none after the first one that translates.
func TestWalk_NATChainsUntilFirstTranslates(t *testing.T) {
	translates := [][]byte{
		reads(1, unix.NFT_PAYLOAD_NETWORK_HEADER, 16, 4),
		ex("nat", u32(unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT), u32(unix.NFTA_NAT_FAMILY, unix.NFPROTO_IPV4), u32(unix.NFTA_NAT_REG_ADDR_MIN, 1)),
	}
	for _, c := range []struct{ translator, want string }{
		{"", "second first rejects"}, {"first", "second first"}, {"second", "second"},
	} {
		k := NewKernel()
		messages := []message{addTable()}
		for _, chain := range []struct {
			name     string
			priority int32
		}{{"rejects", -99}, {"first", -100}, {"second", -100}} {
			messages = append(messages, addChain(chain.name, hooked("nat", unix.NF_INET_PRE_ROUTING, chain.priority)))
			if chain.name == c.translator {
				messages = append(messages, addRule(chain.name, translates...))
			} else {
				messages = append(messages, addRule(chain.name, ex("counter")))
			}
		}
		must(t, k, unix.NFPROTO_IPV4, messages...)
		var chains []string
		for _, step := range k.Trace(arrival, never).Steps {
			chains = append(chains, step.Chain)
		}
		if got := strings.Join(chains, " "); got != c.want {
			t.Errorf("if %q translates: %s, want %s", c.translator, got, c.want)
		}
	}
}

// TestWalk_Jumps: after a jump, the evaluation continues behind it. After a goto it does not, and a return ends the
// chain that was jumped to.
func TestWalk_Jumps(t *testing.T) {
	k := withRules(t, unix.NFPROTO_IPV4, hooked("filter", unix.NF_INET_PRE_ROUTING, 0),
		addChain("jumped"), addChain("gone"), addChain("returns"),
		addRule("base", ends(unix.NFT_JUMP, "returns")),
		addRule("base", ends(unix.NFT_JUMP, "jumped")),
		addRule("base", ends(unix.NFT_RETURN, "")),
		addRule("base", ends(verdictDrop, "")),
		addRule("returns", ends(unix.NFT_RETURN, "")),
		addRule("returns", ends(verdictDrop, "")),
		addRule("jumped", ends(unix.NFT_GOTO, "gone")),
		addRule("jumped", ends(verdictDrop, "")),
		addRule("gone", ex("counter")))
	got := k.Trace(arrival, never)
	var steps []string
	for _, step := range got.Steps {
		steps = append(steps, strings.TrimPrefix(step.String(), "ip kube-proxy "))
	}
	want := []string{"base #1", "returns #1", "base #2", "jumped #1", "gone #1", "base #3"}
	if got.Verdict != Untouched || !slices.Equal(steps, want) {
		t.Errorf("%v by %v, want untouched by %v", got.Verdict, steps, want)
	}
}

// TestWalk_PolicyAndAccept: a packet that reaches the end of a base chain meets the policy, and a packet that one chain
// accepts continues to the next one.
func TestWalk_PolicyAndAccept(t *testing.T) {
	k := withRules(t, unix.NFPROTO_IPV4, hooked("filter", unix.NF_INET_PRE_ROUTING, 0),
		addChain("base", u32(unix.NFTA_CHAIN_POLICY, policyDrop)))
	if got := k.Trace(arrival, never); got.Verdict != Dropped {
		t.Errorf("policy drop: %v", got.Verdict)
	}
	must(t, k, unix.NFPROTO_IPV4, addRule("base", ends(verdictAccept, "")))
	if got := k.Trace(arrival, never); got.Verdict != Untouched {
		t.Errorf("accepted before the policy: %v", got.Verdict)
	}
	must(t, k, unix.NFPROTO_IPV4, addChain("next", hooked("filter", unix.NF_INET_PRE_ROUTING, 1)), addRule("next", ends(verdictDrop, "")))
	if got := k.Trace(arrival, never); got.Verdict != Dropped {
		t.Errorf("dropped by the next chain: %v", got.Verdict)
	}
}

// TestWalk_VerdictMap: a lookup in a verdict map goes to the chain of the element, and the evaluation continues without
// one.
func TestWalk_VerdictMap(t *testing.T) {
	k := withRules(t, unix.NFPROTO_IPV4, hooked("filter", unix.NF_INET_PRE_ROUTING, 0), addChain("rejects"), addRule("rejects", rejects()),
		addSet("map", unix.NFT_SET_MAP, 4, u32(unix.NFTA_SET_DATA_TYPE, unix.NFT_DATA_VERDICT)),
		addRule("base", reads(1, unix.NFT_PAYLOAD_NETWORK_HEADER, 16, 4), looksUp("map", 1, u32(unix.NFTA_LOOKUP_DREG, unix.NFT_REG_VERDICT))))
	if got := k.Trace(arrival, never); got.Verdict != Untouched {
		t.Errorf("without an element: %v", got.Verdict)
	}
	must(t, k, unix.NFPROTO_IPV4, addElements("map", entry(key("\xac\x1e\x00\x29"), to(unix.NFTA_SET_ELEM_DATA, unix.NFT_GOTO, "rejects"))))
	if got := k.Trace(arrival, never); got.Verdict != Rejected {
		t.Errorf("with an element: %v", got.Verdict)
	}
}

// TestWalk_PacketOfTwoFamilies: a packet with addresses of two families causes a panic.
func TestWalk_PacketOfTwoFamilies(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a packet from one family to the other is followed")
		}
	}()
	NewKernel().Outcomes(packet("203.0.113.10:1", "[2001:db8::2]:80"))
}
