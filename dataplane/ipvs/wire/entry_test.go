// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	library "github.com/vishvananda/netlink"
)

// TestEntry_Text: entries of each type are parsed from and printed as ipset's text.
func TestEntry_Text(t *testing.T) {
	for _, c := range []struct {
		kind SetType
		text string
		want Entry
	}{
		{HashIP, "10.0.0.1", Entry{Addr: addr("10.0.0.1")}},
		{HashIP, "fd00::1", Entry{Addr: addr("fd00::1")}},
		{HashIPPort, "10.0.0.1,tcp:80", Entry{Addr: addr("10.0.0.1"), Protocol: TCP, Port: 80}},
		{HashIPPort, "fd00::1,sctp:80", Entry{Addr: addr("fd00::1"), Protocol: SCTP, Port: 80}},
		{HashIPPort, "10.0.0.1,udplite:65535", Entry{Addr: addr("10.0.0.1"), Protocol: UDPLite, Port: 65535}},
		{HashIPPort, "10.0.0.1,47:0", Entry{Addr: addr("10.0.0.1"), Protocol: 47}},
		{HashIPPortIP, "10.0.0.1,tcp:80,10.0.0.2", Entry{addr("10.0.0.1"), TCP, 80, netip.MustParsePrefix("10.0.0.2/32")}},
		{HashIPPortIP, "fd00::1,udp:53,fd00::2", Entry{addr("fd00::1"), UDP, 53, netip.MustParsePrefix("fd00::2/128")}},
		{HashIPPortNet, "10.0.0.1,tcp:80,203.0.113.0/25", Entry{addr("10.0.0.1"), TCP, 80, netip.MustParsePrefix("203.0.113.0/25")}},
		{HashIPPortNet, "10.0.0.1,tcp:80,203.0.113.9", Entry{addr("10.0.0.1"), TCP, 80, netip.MustParsePrefix("203.0.113.9/32")}},
		{HashIPPortNet, "fd00::1,tcp:80,2001:db8::/32", Entry{addr("fd00::1"), TCP, 80, netip.MustParsePrefix("2001:db8::/32")}},
		{BitmapPort, "30080", Entry{Port: 30080}},
		{BitmapPort, "0", Entry{}},
	} {
		got, err := ParseEntry(c.kind, c.text)
		if err != nil || got != c.want {
			t.Errorf("%s %q: %+v, %v; want %+v", c.kind, c.text, got, err, c.want)
		}
		if back := got.String(); back != c.text {
			t.Errorf("%q is printed as %q", c.text, back)
		}
	}
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// TestEntry_OtherSpellings: other spellings of an entry are parsed as the same entry, which is printed in one form.
func TestEntry_OtherSpellings(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1,tcp:80,203.0.113.77/25":  "10.0.0.1,tcp:80,203.0.113.0/25",
		"10.0.0.1,6:80,203.0.113.77/32":    "10.0.0.1,tcp:80,203.0.113.77",
		"FD00:0:0::1,tcp:80,fd00:1:0::/48": "fd00::1,tcp:80,fd00:1::/48",
	} {
		if e, err := ParseEntry(HashIPPortNet, text); err != nil || e.String() != want {
			t.Errorf("%q: %s, %v; want %s", text, e, err, want)
		}
	}
}

func TestParseEntry_Invalid(t *testing.T) {
	for text, kinds := range map[string][]SetType{
		"":                               {HashIP, HashIPPort, HashIPPortIP, HashIPPortNet, BitmapPort},
		"10.0.0.1":                       {HashIPPort, HashIPPortIP, HashIPPortNet, BitmapPort},
		"10.0.0.1,tcp:80":                {HashIP, HashIPPortIP, HashIPPortNet, BitmapPort},
		"10.0.0.1,tcp:80,10.0.0.2":       {HashIP, HashIPPort, BitmapPort, "hash:net"},
		"10.0.0.1,tcp:80,10.0.0.0/8":     {HashIPPortIP},
		"10.0.0.1,tcp:80,0.0.0.0/0":      {HashIPPortNet},
		"10.0.0.1,tcp:80,fd00::1":        {HashIPPortIP, HashIPPortNet},
		"10.0.0.1,tcp:80,fd00::/64":      {HashIPPortNet},
		"fe80::1%eth0":                   {HashIP},
		"10.0.0.1,tcp:65536":             {HashIPPort},
		"10.0.0.1,tcp:080":               {HashIPPort},
		"10.0.0.1,tcp":                   {HashIPPort},
		"10.0.0.1,icmp:8":                {HashIPPort},
		"10.0.0.1,0:80":                  {HashIPPort},
		"10.0.0.1,256:80":                {HashIPPort},
		"10.0.0.1,tcp:80-90":             {HashIPPort},
		"[fd00::1],tcp:80":               {HashIPPort},
		"10.0.0.1,tcp:80,10.0.0.2,tcp:1": {HashIPPortIP, HashIPPortNet},
		"65536":                          {BitmapPort},
		"+80":                            {BitmapPort},
	} {
		for _, kind := range kinds {
			if e, err := ParseEntry(kind, text); err == nil {
				t.Errorf("%s: %q was taken for %+v", kind, text, e)
			}
		}
	}
}

// randomEntry makes an entry of a type.
func randomEntry(r *rand.Rand, t SetType, f Family) Entry {
	port := uint16(r.Uint32())
	if t == BitmapPort {
		return Entry{Port: port}
	}
	e := Entry{Addr: randomAddr(r, f)}
	if t != HashIP {
		e.Protocol, e.Port = []Protocol{TCP, UDP, SCTP, UDPLite}[r.IntN(4)], port
	}
	switch second := randomAddr(r, f); t {
	case HashIPPortIP:
		e.Second = netip.PrefixFrom(second, second.BitLen())
	case HashIPPortNet:
		e.Second = netip.PrefixFrom(second, 1+r.IntN(second.BitLen())).Masked()
	}
	return e
}

func randomAddr(r *rand.Rand, f Family) netip.Addr {
	var b [16]byte
	for i := range b {
		word := r.Uint32()
		b[i] = byte(word) & byte(word>>8) // many zeros, for short spellings
	}
	b[0] |= 1
	if f == Inet {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16(b)
}

var everyKind = []SetSpec{
	{Type: HashIP, Family: Inet}, {Type: HashIP, Family: Inet6},
	{Type: HashIPPort, Family: Inet}, {Type: HashIPPort, Family: Inet6},
	{Type: HashIPPortIP, Family: Inet}, {Type: HashIPPortIP, Family: Inet6},
	{Type: HashIPPortNet, Family: Inet}, {Type: HashIPPortNet, Family: Inet6},
	{Type: BitmapPort},
}

// listed returns an entry as the library reads it.
func listed(e Entry) library.IPSetEntry {
	l := library.IPSetEntry{IP: e.Addr.AsSlice(), Port: &e.Port}
	if e.Protocol != 0 {
		l.Protocol = (*uint8)(&e.Protocol)
	}
	if e.Second.IsValid() {
		l.IP2, l.CIDR2 = e.Second.Addr().AsSlice(), uint8(e.Second.Bits())
	}
	return l
}

// TestEntry_RoundTrip: an entry is the same after it was printed and parsed, and after the library read it.
func TestEntry_RoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, kind := range everyKind {
		for range 2000 {
			e := randomEntry(r, kind.Type, kind.Family)
			if got, err := ParseEntry(kind.Type, e.String()); err != nil || got != e {
				t.Fatalf("%s: %+v became %q, and that %+v, %v", kind, e, e.String(), got, err)
			}
			l := listed(e)
			if got, ok := entryOf(kind.Type, &l); !ok || got != e {
				t.Fatalf("%s: %+v became %+v, and that %+v, %t", kind, e, l, got, ok)
			}
			if l.CIDR2 = 0; kind.Type == HashIPPortIP {
				if got, ok := entryOf(kind.Type, &l); !ok || got != e {
					t.Fatalf("%s: %+v without a length became %+v, %t", kind, e, got, ok)
				}
			}
		}
	}
}

// TestEntry_OtherTypes: an entry of one type is no entry of another type, except that an address is also a network.
func TestEntry_OtherTypes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, from := range everyKind {
		for _, to := range everyKind {
			e := randomEntry(r, from.Type, from.Family)
			want := from.Type == to.Type ||
				e.Second.IsSingleIP() && e.Second.IsValid() && (to.Type == HashIPPortIP || to.Type == HashIPPortNet)
			l := listed(e)
			if _, ok := entryOf(to.Type, &l); ok != want {
				t.Errorf("%s as %s: %t", e, to, ok)
			}
		}
	}
}

// FuzzParseEntry: an accepted text is printed as a text that is parsed as the same entry.
func FuzzParseEntry(f *testing.F) {
	for _, text := range []string{"30080", "10.0.0.1", "fd00::1,tcp:80", "10.0.0.1,tcp:80,203.0.113.0/25", "::ffff:1.2.3.4,6:1,::/1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, kind := range everyKind {
			e, err := ParseEntry(kind.Type, text)
			if err != nil {
				continue
			}
			if again, err := ParseEntry(kind.Type, e.String()); err != nil || again != e {
				t.Errorf("%s: %q is printed as %q, which is %+v, %v", kind.Type, text, e, again, err)
			}
		}
	})
}
