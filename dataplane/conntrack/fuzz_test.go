// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"bytes"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// FuzzFlow reads any bytes as the kernel's description of a flow. A request to delete it contains only attributes
// from the description.
func FuzzFlow(f *testing.F) {
	for _, seed := range flowSeeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, attrs []byte) {
		found := parse(attrs)
		identity := Description(attrs).appendIdentity(nil)
		if len(identity) > len(attrs)+3 {
			t.Errorf("%d bytes of identity of %d", len(identity), len(attrs))
		}
		if again := parse(append(bytes.Clone(identity), attrs...)); found.To.IsValid() && again.To != found.To {
			t.Errorf("the identity of %s is that of %s", found.To, again.To)
		}
		if found.State != "" && !slices.Contains(tcpStates[:], found.State) {
			t.Errorf("accepted %+v", found)
		}
	})
}

// flowSeeds are a flow of each family, as the kernel describes it, and one of nonsense.
func flowSeeds() [][]byte {
	tuple := func(b []byte, kind, source, destination uint16, from, to []byte) []byte {
		b, mark := netlink.Nest(b, kind|nested)
		b, ip := netlink.Nest(b, attrTupleIP|nested)
		b = netlink.End(netlink.AppendBytes(netlink.AppendBytes(b, source, from), destination, to), ip)
		b, protocol := netlink.Nest(b, attrTupleProtocol|nested)
		b = netlink.AppendUint8(b, attrProtocol, 6)
		b = netlink.AppendUint16(netlink.AppendUint16(b, attrSourcePort, 40000), attrDestinationPort, 80)
		return netlink.End(netlink.End(b, protocol), mark)
	}
	one, other := []byte{10, 0, 0, 1}, []byte{10, 96, 0, 1}
	four := tuple(nil, attrOriginal, 1, 2, one, other)
	four = tuple(four, attrReply, 1, 2, other, one)
	four = netlink.AppendUint32(netlink.AppendUint32(four, attrStatus, statusReplied), attrID, 7)
	long, longer := bytes.Repeat([]byte{0xfd}, 16), bytes.Repeat([]byte{0xfc}, 16)
	six := tuple(netlink.AppendUint16(nil, attrZone, 3), attrOriginal, 3, 4, long, longer)
	six = tuple(six, attrReply, 3, 4, longer, long)
	return [][]byte{four, six, {8, 0, 1, 0x80, 4, 0, 1, 0}}
}
