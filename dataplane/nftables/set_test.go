package nftables

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// anyOfUs are all sets, with one of each that belongs to a service port.
func anyOfUs() []set {
	all := append([]set(nil), sharedSets...)
	for _, of := range affinitySets {
		all = append(all, of("a"))
	}
	return all
}

// TestOldReleasesCanSort: every part of a key has a type with a size of its own. nft 0.9.8 aborts
// when it sorts keys with a part that has none, whatever it was asked for.
func TestOldReleasesCanSort(t *testing.T) {
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

// TestTheFormerTypeOfASlot: a set with the type that nft and earlier releases give a slot is as
// good as ours, one with another type is not.
func TestTheFormerTypeOfASlot(t *testing.T) {
	d := dialects[service.IPv4]
	for _, s := range anyOfUs() {
		read := func(keyType uint32) string {
			b := netlink.AppendUint32(nil, unix.NFTA_SET_KEY_TYPE, keyType)
			for a := range netlink.Attrs(s.body(d)) {
				if a.Type != unix.NFTA_SET_KEY_TYPE {
					b = netlink.AppendBytes(b, a.Type, a.Data)
				}
			}
			return normalSet(d, netlink.AppendString(b, unix.NFTA_SET_NAME, s.name))
		}
		want := string(s.body(d))
		if read(packTypes(d, s.key, typeInteger)) != want || read(nftType(d, s.key)) != want {
			t.Errorf("%s: a set of an earlier release is not ours", s.name)
		}
		if read(nftType(d, s.key)+1) == want {
			t.Errorf("%s: a set of another type is ours", s.name)
		}
	}
}
