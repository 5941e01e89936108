// SPDX-License-Identifier: Apache-2.0

package render

import (
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

// anyOfUs are all sets, with one of each that belongs to a service port.
func anyOfUs() []set {
	all := append([]set(nil), sharedSets...)
	for _, s := range affinitySets {
		all = append(all, s.of("a"))
	}
	return all
}

// TestSet_KeysSortableByOldNft: every part of a key has a type with a size. nft 0.9.8 aborts on any command when it
// sorts keys with a part that has none.
func TestSet_KeysSortableByOldNft(t *testing.T) {
	sized := map[uint32]bool{7: true, 8: true, 12: true, 13: true, typeMark: true}
	for _, family := range service.Families {
		d := dialects[family]
		for _, s := range anyOfUs() {
			packed := nftType(d, s.key)
			for ; packed != 0; packed >>= 6 {
				if !sized[packed&63] {
					t.Errorf("%s, %v: a part of the key has type %d", s.name, family, packed&63)
				}
			}
		}
	}
}

// TestSet_NameUniquePerDefinition: sets with different definitions have different names. One of the digests is written
// down, because a release that names the same sets differently replaces them for nothing.
func TestSet_NameUniquePerDefinition(t *testing.T) {
	if setFirewalled.name != "firewalled-0c2eac" {
		t.Errorf("the definition of %s, or how its digest is made, has changed", setFirewalled.name)
	}
	base := set{key: frontendKey}
	of := map[string]string{}
	for what, s := range map[string]set{
		"it": base, "another key": {key: nodePortKey}, "another type of the key": {key: []field{fieldSlot, fieldProtocol, fieldPort}},
		"verdicts": {key: frontendKey, verdict: true}, "data": {key: frontendKey, data: endpointOf},
		"ranges": {key: frontendKey, ranges: true}, "memory": {key: frontendKey, remembers: 10}, "more memory": {key: frontendKey, remembers: 11},
	} {
		name := s.named("word").of("rest").name
		if other, twice := of[name]; twice {
			t.Errorf("%s and %s are %s", what, other, name)
		}
		of[name] = what
	}
	delete(names, "word")
}
