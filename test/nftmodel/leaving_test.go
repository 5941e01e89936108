// SPDX-License-Identifier: Apache-2.0

package nftmodel

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// TestLeaving_DeletedBaseChainRunsOldRules: a base chain that is deleted with its rules is called for a moment longer.
// Its rules jump into chains that already have their new rules, and find sets as they were and maps without elements.
func TestLeaving_DeletedBaseChainRunsOldRules(t *testing.T) {
	toAddress := reads(1, unix.NFT_PAYLOAD_NETWORK_HEADER, 16, 4)
	is := key("\xac\x1e\x00\x29")
	before := []message{
		addChain("target"), addChain("rejects"), addRule("rejects", rejects()),
		addSet("set", 0, 4), addElements("set", entry(is)),
		addSet("map", unix.NFT_SET_MAP, 4, u32(unix.NFTA_SET_DATA_TYPE, unix.NFT_DATA_VERDICT)),
		addElements("map", entry(is, to(unix.NFTA_SET_ELEM_DATA, unix.NFT_GOTO, "rejects"))),
	}
	find := looksUp("map", 1, u32(unix.NFTA_LOOKUP_DREG, unix.NFT_REG_VERDICT))
	for _, c := range []struct {
		name      string
		rules     [][]byte
		write     []message
		leaving   bool
		meanwhile Verdict
	}{
		{"the target of a jump changes", [][]byte{ends(unix.NFT_JUMP, "target")},
			[]message{addRule("target", rejects()), deleteChain("base")}, true, Rejected},
		{"the rules go in the same transaction", [][]byte{ends(unix.NFT_JUMP, "target")},
			[]message{addRule("target", rejects()), flushChain("base"), deleteChain("base")}, true, Rejected},
		{"the target is deleted as well", [][]byte{ends(unix.NFT_JUMP, "target")},
			[]message{flushChain("base"), deleteChain("base"), flushChain("target"), deleteChain("target")}, true, Untouched},
		{"the table goes, and a set is asked", [][]byte{append(append(toAddress, looksUp("set", 1)...), rejects()...)},
			[]message{inTable(unix.NFT_MSG_DELTABLE, 0)}, true, Rejected},
		{"the table goes, and a map is asked", [][]byte{append(toAddress, find...), ends(unix.NFT_JUMP, "target")},
			[]message{inTable(unix.NFT_MSG_DELTABLE, 0)}, true, Untouched},
		{"the chain has no rules", nil, []message{addRule("target", rejects()), deleteChain("base")}, false, Untouched},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := withRules(t, unix.NFPROTO_IPV4, hooked("filter", unix.NF_INET_PRE_ROUTING, 0), before...)
			for _, rule := range c.rules {
				must(t, k, unix.NFPROTO_IPV4, addRule("base", rule))
			}
			must(t, k, unix.NFPROTO_IPV4, c.write...)
			if got := k.Leaving(service.IPv4); got != c.leaving || k.Leaving(service.IPv6) {
				t.Errorf("leaving: %v, want %v", got, c.leaving)
			}
			if outcomes, _ := k.ExploreLeaving(arrival); outcomes[0].Verdict != c.meanwhile {
				t.Errorf("meanwhile a packet is %v, want %v", outcomes[0].Verdict, c.meanwhile)
			}
			if outcomes, _ := k.Explore(arrival); outcomes[0].Verdict != Untouched {
				t.Errorf("in the end a packet is %v", outcomes[0].Verdict)
			}
			must(t, k, unix.NFPROTO_IPV4, addTable(), addChain("other"))
			if k.Leaving(service.IPv4) {
				t.Error("still leaving after the next transaction")
			}
		})
	}
}
