// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

func TestDecodeKey(t *testing.T) {
	v4, v6 := netip.MustParseAddr("172.30.0.41"), netip.MustParseAddr("fd00:172:30::41")
	for _, test := range []struct {
		name string
		want Key
	}{
		{TailKey("b"), Key{Lane: Tail, Text: "b"}},
		{
			DestinationKey(v4, service.TCP, 80),
			Key{Lane: Tree, Addr: v4, HasPort: true, Port: 80},
		},
		{
			DestinationKey(v6, service.SCTP, 65535),
			Key{Lane: Tree, Addr: v6, HasPort: true, Protocol: service.SCTP, Port: 65535},
		},
		{
			PortKey(service.UDP, 30053),
			Key{Lane: Tree, HasPort: true, Protocol: service.UDP, Port: 30053},
		},
		{SourceKey(v4), Key{Lane: Tree, Addr: v4}},
		{SourceKey(v6), Key{Lane: Tree, Addr: v6}},
	} {
		got, err := DecodeKey(test.name)
		if err != nil || got != test.want {
			t.Errorf("DecodeKey(%x) = %+v, %v, want %+v", test.name, got, err, test.want)
		}
	}
}

// TestDecodeKey_Refuses: DecodeKey rejects names that are no keys.
func TestDecodeKey_Refuses(t *testing.T) {
	for _, name := range []string{"", "\x00abcd", "\x03abcd", "\x01", "\x01abcde", "\x01\x2b\x00\x50"} {
		if key, err := DecodeKey(name); err == nil {
			t.Errorf("DecodeKey(%x) = %v, want an error", name, key)
		}
	}
}

// TestKey_Order: the byte order of keys is the tree's order: lane, address, protocol number, port.
func TestKey_Order(t *testing.T) {
	low, high := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	names := []string{
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

var (
	services  = Container{Table: "nat", Chain: "KUBE-SERVICES", Letter: 'S'}
	nodePorts = Container{Table: "nat", Chain: "KUBE-NODEPORTS", Letter: 'N', Shape: ByPort}
	hairpin   = Container{Table: "nat", Chain: "KUBE-SVC-HAIRPIN", Letter: 'H', Shape: BySource}
	// refused and refusedPorts are guarded.
	refused      = Container{Table: "filter", Chain: "KUBE-SERVICES", Letter: 'R', Guarded: true}
	refusedPorts = Container{Table: "filter", Chain: "KUBE-EXT-NODEPORTS", Letter: 'P', Shape: ByPort, Guarded: true}
)

// TestPrefix_MatchesAndNames: each kind of prefix has the expected matches and chain name.
func TestPrefix_MatchesAndNames(t *testing.T) {
	v4 := netip.MustParseAddr("172.30.255.41")
	v6 := netip.MustParseAddr("fd00:172:30::41")
	for _, test := range []struct {
		name      string
		container Container
		family    service.Family
		key       string
		bits      int
		matches   []string
		chain     string
	}{
		{"address", services, service.IPv4, DestinationKey(v4, service.TCP, 80), 20,
			[]string{"-d 172.30.240.0/20"}, "KUBE-SVC-TS-AC1EF000-20"},
		{"whole address", services, service.IPv4, DestinationKey(v4, service.TCP, 80), 32,
			[]string{"-d 172.30.255.41/32"}, "KUBE-SVC-TS-AC1EFF29-32"},
		{"all but sctp", services, service.IPv4, DestinationKey(v4, service.UDP, 80), 33,
			[]string{"-d 172.30.255.41/32 -p tcp", "-d 172.30.255.41/32 -p udp"}, ""},
		{"sctp", services, service.IPv4, DestinationKey(v4, service.SCTP, 80), 33,
			[]string{"-d 172.30.255.41/32 -p sctp"}, ""},
		{"udp", services, service.IPv4, DestinationKey(v4, service.UDP, 80), 36,
			[]string{"-d 172.30.255.41/32 -p udp"}, ""},
		{"all ports", services, service.IPv4, DestinationKey(v4, service.TCP, 80), 40,
			[]string{"-d 172.30.255.41/32 -p tcp"}, ""},
		{"half of the ports", services, service.IPv4, DestinationKey(v4, service.TCP, 40000), 41,
			[]string{"-d 172.30.255.41/32 -p tcp -m tcp --dport 32768:65535"}, ""},
		{"one port", services, service.IPv4, DestinationKey(v4, service.TCP, 443), 56,
			[]string{"-d 172.30.255.41/32 -p tcp -m tcp --dport 443"}, ""},
		{"v6 short", services, service.IPv6, DestinationKey(v6, service.TCP, 80), 15,
			[]string{"-d fd00::/15"}, "KUBE-SVC-TS-FD000000-15"},
		{"v6 long", services, service.IPv6, DestinationKey(v6, service.UDP, 53), 124,
			[]string{"-d fd00:172:30::40/124"}, ""},
		{"v6 port", services, service.IPv6, DestinationKey(v6, service.UDP, 53), 150,
			[]string{"-d fd00:172:30::41/128 -p udp -m udp --dport 52:55"}, ""},
		{"port", nodePorts, service.IPv4, PortKey(service.TCP, 30001), 20,
			[]string{"-p tcp -m tcp --dport 30000:30015"}, "KUBE-SVC-TN-067530-20"},
		{"protocols", nodePorts, service.IPv4, PortKey(service.TCP, 30001), 2,
			[]string{"-p tcp", "-p udp"}, "KUBE-SVC-TN-000000-2"},
		{"source", hairpin, service.IPv4, SourceKey(v4), 24,
			[]string{"-s 172.30.255.0/24"}, "KUBE-SVC-TH-AC1EFF00-24"},
		{"v6 source", hairpin, service.IPv6, SourceKey(v6), 128,
			[]string{"-s fd00:172:30::41/128"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := prefix{key: test.key[1:], bits: test.bits}
			if got := test.container.appendMatches(nil, test.family, p); !slices.Equal(got, test.matches) {
				t.Errorf("matches %q, want %q", got, test.matches)
			}
			chain := string(test.container.appendChain(nil, p))
			if test.chain != "" && chain != test.chain {
				t.Errorf("chain %s, want %s", chain, test.chain)
			}
			if test.chain == "" && len(chain) != 28 {
				t.Errorf("chain %s has %d characters, want 28", chain, len(chain))
			}
		})
	}
}

// TestPrefix_ChainNamesDiffer: chain names of neighboring prefixes differ, even if only the length differs.
func TestPrefix_ChainNamesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, addr := range []string{"fd00::", "fd00::8000"} {
		key := DestinationKey(netip.MustParseAddr(addr), service.TCP, 0)[1:]
		for bits := 113; bits <= 152; bits++ {
			seen[string(services.appendChain(nil, prefix{key: key, bits: bits}))] = true
		}
	}
	if len(seen) != 80 {
		t.Errorf("80 prefixes have %d names", len(seen))
	}
}
