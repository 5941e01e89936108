// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

var (
	four  = netip.MustParseAddr("10.0.0.1")
	other = netip.MustParseAddr("10.0.0.2")
	six   = netip.MustParseAddr("fd00::1")
)

// TestDevice_CountedAddresses: loopback and link-local IPv6 addresses do not count as addresses of the host.
func TestDevice_CountedAddresses(t *testing.T) {
	for text, want := range map[string]bool{
		"10.0.0.1": true, "169.254.20.10": true, "fd00::1": true, "127.0.0.1": false, "::1": false, "fe80::1": false,
	} {
		if got := counts(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

// announcedAddress is how the kernel announces an address.
func announcedAddress(kind uint16, index int, a netip.Addr, prefixBits int) netlink.Message {
	head := nl.NewIfAddrmsg(nl.GetIPFamily(a.AsSlice()))
	head.Prefixlen, head.Index = uint8(prefixBits), uint32(index)
	data := head.Serialize()
	if a.Is4() { // IPv6 has IFA_ADDRESS only
		data = append(data, nl.NewRtAttr(unix.IFA_LOCAL, a.AsSlice()).Serialize()...)
	}
	data = append(data, nl.NewRtAttr(unix.IFA_ADDRESS, a.AsSlice()).Serialize()...)
	return netlink.Message{Kind: kind, Payload: data}
}

func announcedLink(kind uint16, index int, name string) netlink.Message {
	head := nl.NewIfInfomsg(unix.AF_UNSPEC)
	head.Index = int32(index)
	data := append(head.Serialize(), nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)).Serialize()...)
	return netlink.Message{Kind: kind, Payload: data}
}

func TestDevice_ForeignChange(t *testing.T) {
	for name, c := range map[string]struct {
		m    netlink.Message
		want bool
	}{
		"our address came":                       {announcedAddress(unix.RTM_NEWADDR, 7, four, 32), false},
		"our IPv6 address came":                  {announcedAddress(unix.RTM_NEWADDR, 7, six, 128), false},
		"our address went":                       {announcedAddress(unix.RTM_DELADDR, 7, four, 32), true},
		"our IPv6 address went":                  {announcedAddress(unix.RTM_DELADDR, 7, six, 128), true},
		"another address came":                   {announcedAddress(unix.RTM_NEWADDR, 7, other, 32), true},
		"what we removed went":                   {announcedAddress(unix.RTM_DELADDR, 7, other, 32), false},
		"no host address":                        {announcedAddress(unix.RTM_NEWADDR, 7, other, 24), false},
		"a link-local address":                   {announcedAddress(unix.RTM_NEWADDR, 7, netip.MustParseAddr("fe80::1"), 128), false},
		"an address of another device":           {announcedAddress(unix.RTM_DELADDR, 8, four, 32), false},
		"the device changed":                     {announcedLink(unix.RTM_NEWLINK, 7, DeviceName), false},
		"the device went":                        {announcedLink(unix.RTM_DELLINK, 7, DeviceName), true},
		"the device has another name":            {announcedLink(unix.RTM_NEWLINK, 7, "other"), true},
		"there is another device of the name":    {announcedLink(unix.RTM_NEWLINK, 8, DeviceName), true},
		"another device came":                    {announcedLink(unix.RTM_NEWLINK, 8, "other"), false},
		"another device went":                    {announcedLink(unix.RTM_DELLINK, 8, "other"), false},
		"something that is no message of a link": {netlink.Message{Kind: unix.RTM_NEWROUTE, Payload: make([]byte, 64)}, false},
		"an address without anything":            {netlink.Message{Kind: unix.RTM_NEWADDR, Payload: []byte{1}}, false},
	} {
		d := &Device{index: 7, held: map[netip.Addr]struct{}{four: {}, six: {}}}
		if got := d.foreign(c.m); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestDevice_WhileMissing: while the device is missing, its creation by another program is foreign, and our own is not.
func TestDevice_WhileMissing(t *testing.T) {
	d := &Device{held: map[netip.Addr]struct{}{}}
	made := announcedLink(unix.RTM_NEWLINK, 7, DeviceName)
	if !d.foreign(made) {
		t.Error("another program made it, and that is not foreign")
	}
	d.expect(true)
	if d.foreign(made) {
		t.Error("we made it, and that is foreign")
	}
	d.remember(7)
	d.expect(false)
	if d.foreign(made) {
		t.Error("we have made it, and that is foreign")
	}
}

// TestDevice_HeldAddresses: the device knows the addresses that it holds after adding, removing, reading and
// replacement.
func TestDevice_HeldAddresses(t *testing.T) {
	d := &Device{index: 7, held: map[netip.Addr]struct{}{}}
	holds := func(when string, want ...netip.Addr) {
		t.Helper()
		for _, a := range []netip.Addr{four, six} {
			if _, held := d.held[a]; held != slices.Contains(want, a) {
				t.Errorf("%s: %s held %t", when, a, held)
			}
		}
	}
	d.hold(four, true)
	d.hold(six, true)
	holds("after adding", four, six)
	d.hold(four, false)
	holds("after removing", six)
	d.saw(unix.AF_INET, []netip.Addr{four})
	holds("after reading one family", four, six)
	d.remember(8)
	holds("with another device")
}

func TestDevice_Results(t *testing.T) {
	d := &Device{index: 7, held: map[netip.Addr]struct{}{}}
	for name, c := range map[string]struct {
		adding  bool
		answer  error
		is      error // nil for success
		unknown bool
	}{
		"added":                {true, nil, nil, false},
		"there already":        {true, unix.EEXIST, nil, false},
		"gone already":         {false, unix.EADDRNOTAVAIL, nil, false},
		"gone with the device": {false, unix.ENODEV, nil, false},
		"rejected":             {true, unix.EACCES, unix.EACCES, false},
		"lost":                 {false, ErrUnanswered, ErrUnanswered, true},
		"no device":            {true, unix.ENODEV, ErrNoDevice, false},
	} {
		err := d.settle(c.adding, four, c.answer)
		if !errors.Is(err, c.is) || Unknown(err) != c.unknown {
			t.Errorf("%s: %v", name, err)
		}
	}
	if d.index != 0 {
		t.Error("a device that is gone is not looked for again")
	}
}

// TestDevice_OneFamily: a Device of one family does not report changes to addresses of the other family.
func TestDevice_OneFamily(t *testing.T) {
	for family, want := range map[int]map[netip.Addr]bool{
		unix.AF_UNSPEC: {four: true, six: true},
		unix.AF_INET:   {four: true, six: false},
		unix.AF_INET6:  {four: false, six: true},
	} {
		d := &Device{index: 7, family: family, held: map[netip.Addr]struct{}{}}
		for a, foreign := range want {
			if got := d.foreign(announcedAddress(unix.RTM_NEWADDR, 7, a, a.BitLen())); got != foreign {
				t.Errorf("family %d: %s is foreign: %t", family, a, got)
			}
		}
	}
}
