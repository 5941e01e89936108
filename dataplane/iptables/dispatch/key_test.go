package dispatch

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

func TestKeysDecode(t *testing.T) {
	v4, v6 := netip.MustParseAddr("172.30.0.41"), netip.MustParseAddr("fd00:172:30::41")
	for _, test := range []struct {
		name string
		want Key
		text string
	}{
		{HeadKey("a"), Key{Lane: Head, Text: "a"}, "head a"},
		{TailKey("b"), Key{Lane: Tail, Text: "b"}, "tail b"},
		{
			DestinationKey(v4, service.TCP, 80),
			Key{Lane: Tree, Addr: v4, HasPort: true, Port: 80}, "172.30.0.41 tcp 80",
		},
		{
			DestinationKey(v6, service.SCTP, 65535),
			Key{Lane: Tree, Addr: v6, HasPort: true, Protocol: service.SCTP, Port: 65535}, "fd00:172:30::41 sctp 65535",
		},
		{
			PortKey(service.UDP, 30053),
			Key{Lane: Tree, HasPort: true, Protocol: service.UDP, Port: 30053}, "udp 30053",
		},
		{SourceKey(v4), Key{Lane: Tree, Addr: v4}, "172.30.0.41"},
		{SourceKey(v6), Key{Lane: Tree, Addr: v6}, "fd00:172:30::41"},
	} {
		got, err := DecodeKey(test.name)
		if err != nil || got != test.want {
			t.Errorf("DecodeKey(%x) = %+v, %v, want %+v", test.name, got, err, test.want)
		}
		if got.String() != test.text {
			t.Errorf("%x reads %q, want %q", test.name, got, test.text)
		}
	}
}

func TestDecodeKeyRefuses(t *testing.T) {
	for _, name := range []string{"", "\x03abcd", "\x01", "\x01abcde", "\x01\x2b\x00\x50"} {
		if key, err := DecodeKey(name); err == nil {
			t.Errorf("DecodeKey(%x) = %v, want an error", name, key)
		}
	}
}

// Byte order is tree order: lane, address, protocol number, port.
func TestKeyOrder(t *testing.T) {
	low, high := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	names := []string{
		HeadKey("z"),
		DestinationKey(low, service.TCP, 80),
		DestinationKey(low, service.TCP, 256),
		DestinationKey(low, service.UDP, 1),
		DestinationKey(low, service.SCTP, 1),
		DestinationKey(high, service.TCP, 1),
		TailKey("a"),
	}
	if !slices.IsSorted(names) {
		t.Errorf("not in order: %q", names)
	}
}
