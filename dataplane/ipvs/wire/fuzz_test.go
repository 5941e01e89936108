// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// FuzzSets reads any bytes as the kernel's list of sets. Accepted entries are printed in the one form that is parsed as
// the same entry, and lists are no longer than the answer.
func FuzzSets(f *testing.F) {
	for _, kind := range everyKind {
		f.Add(describedSet(SetSpec{Name: "KUBE-X", Type: kind.Type, Family: kind.Family, MaxElem: 4},
			Entry{Addr: netip.MustParseAddr("10.0.0.1"), Protocol: TCP, Port: 80}))
	}
	f.Add(describedSet(SetSpec{Name: "KUBE-X", Type: HashIPPortNet, Family: Inet6, MaxElem: 1},
		Entry{Addr: netip.MustParseAddr("fd00::1"), Protocol: UDP, Port: 53, Second: netip.MustParsePrefix("fd01::/64")}))
	f.Add(netlink.AppendText(describedSet(SetSpec{Name: "KUBE-X", Type: HashIP, Family: Inet, MaxElem: 4},
		Entry{Addr: netip.MustParseAddr("10.0.0.1")}), setTypeName, "list:set"))
	f.Fuzz(func(t *testing.T, attrs []byte) {
		r := setReader{}
		r.read(attrs)
		r.read(attrs)
		entries := 0
		for _, set := range r.sets {
			entries += len(set.Entries)
			_ = set.Capacity()
			for _, e := range set.Entries {
				checkEntry(t, set.Type, e)
			}
		}
		if entries*4 > 2*len(attrs) {
			t.Errorf("%d entries in %d bytes", entries, len(attrs))
		}
	})
}

// describedSet is a set as the kernel describes it, with one entry.
func describedSet(spec SetSpec, e Entry) []byte {
	b := netlink.AppendText(nil, setName, spec.Name)
	b = netlink.AppendText(b, setTypeName, string(spec.Type))
	b = netlink.AppendUint8(b, setFamily, uint8(spec.Family))
	b, header := netlink.Nest(b, setData|nested)
	b = netlink.AppendUint32(b, headerMaxElem|network, spec.MaxElem)
	b = netlink.AppendUint16(b, headerPortTo|network, 65535)
	b = netlink.End(b, header)
	b, list := netlink.Nest(b, setList|nested)
	b, entry := netlink.Nest(b, setData|nested)
	return netlink.End(netlink.End(e.append(b), entry), list)
}

// checkEntry requires that an entry of the kernel is one that can be named and removed.
func checkEntry(t *testing.T, kind SetType, e Entry) {
	t.Helper()
	if again, ok := readEntry(kind, e.append(nil)); !ok || again != e {
		t.Errorf("%s: %+v is written as %+v", kind, e, again)
	}
	if again, err := ParseEntry(kind, e.String()); err != nil || again != e {
		t.Errorf("%s: %+v is printed as %q, which is %+v, %v", kind, e, e, again, err)
	}
}
