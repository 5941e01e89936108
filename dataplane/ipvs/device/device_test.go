package device

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

var (
	four  = netip.MustParseAddr("10.0.0.1")
	other = netip.MustParseAddr("10.0.0.2")
	six   = netip.MustParseAddr("fd00::1")
)

// TestRequestsAsBytes holds requests against what the kernel's headers say; words
// are written for a little-endian machine.
func TestRequestsAsBytes(t *testing.T) {
	for want, r := range map[string]*nl.NetlinkRequest{
		// Length, type, request+ack+excl+create, (sequence, port); family, prefix,
		// flags, scope, index; local; address.
		"28000000" + "1400" + "0506" + "02200000" + "07000000" + "08000200" + "0a000001" + "08000100" + "0a000001": addressRequest(unix.RTM_NEWADDR, 7, four),
		"40000000" + "1500" + "0500" + "0a800000" + "07000000" +
			"14000200" + "fd000000000000000000000000000001" + "14000100" + "fd000000000000000000000000000001": addressRequest(unix.RTM_DELADDR, 7, six),
	} {
		b := r.Serialize()
		if got := hex.EncodeToString(slices.Concat(b[:8], b[16:])); got != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	}
}

func TestWhichAddressesCount(t *testing.T) {
	for text, want := range map[string]bool{
		"10.0.0.1": true, "169.254.20.10": true, "fd00::1": true, "127.0.0.1": false, "::1": false, "fe80::1": false,
	} {
		if got := counts(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

// announcedAddress is what the kernel tells of an address.
func announcedAddress(kind uint16, index int, a netip.Addr, prefixBits int) syscall.NetlinkMessage {
	head := nl.NewIfAddrmsg(nl.GetIPFamily(a.AsSlice()))
	head.Prefixlen, head.Index = uint8(prefixBits), uint32(index)
	data := head.Serialize()
	if a.Is4() { // an IPv6 address is told as IFA_ADDRESS only
		data = append(data, nl.NewRtAttr(unix.IFA_LOCAL, a.AsSlice()).Serialize()...)
	}
	data = append(data, nl.NewRtAttr(unix.IFA_ADDRESS, a.AsSlice()).Serialize()...)
	return syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: kind}, Data: data}
}

func announcedLink(kind uint16, index int, name string) syscall.NetlinkMessage {
	head := nl.NewIfInfomsg(unix.AF_UNSPEC)
	head.Index = int32(index)
	data := append(head.Serialize(), nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)).Serialize()...)
	return syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: kind}, Data: data}
}

func TestWhoseChange(t *testing.T) {
	for name, c := range map[string]struct {
		m    syscall.NetlinkMessage
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
		"the device changed":                     {announcedLink(unix.RTM_NEWLINK, 7, Name), false},
		"the device went":                        {announcedLink(unix.RTM_DELLINK, 7, Name), true},
		"the device has another name":            {announcedLink(unix.RTM_NEWLINK, 7, "other"), true},
		"there is another device of the name":    {announcedLink(unix.RTM_NEWLINK, 8, Name), true},
		"another device came":                    {announcedLink(unix.RTM_NEWLINK, 8, "other"), false},
		"another device went":                    {announcedLink(unix.RTM_DELLINK, 8, "other"), false},
		"something that is no message of a link": {syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: unix.RTM_NEWROUTE}, Data: make([]byte, 64)}, false},
		"an address without anything":            {syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: unix.RTM_NEWADDR}, Data: []byte{1}}, false},
	} {
		d := &Device{index: 7, held: map[netip.Addr]struct{}{four: {}, six: {}}}
		if got := d.foreign([]syscall.NetlinkMessage{c.m}); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	// One that counts among others that do not.
	d := &Device{index: 7, held: map[netip.Addr]struct{}{four: {}}}
	if !d.foreign([]syscall.NetlinkMessage{announcedAddress(unix.RTM_NEWADDR, 7, four, 32), announcedLink(unix.RTM_DELLINK, 7, Name)}) {
		t.Error("the second announcement was not looked at")
	}
}

// TestWhileTheDeviceIsMissing nobody else's devices are taken for it, and making it
// is not news.
func TestWhileTheDeviceIsMissing(t *testing.T) {
	d := &Device{held: map[netip.Addr]struct{}{}}
	made := []syscall.NetlinkMessage{announcedLink(unix.RTM_NEWLINK, 7, Name)}
	if !d.foreign(made) {
		t.Error("somebody else made it, and that is no news")
	}
	d.expect(true)
	if d.foreign(made) {
		t.Error("we made it, and that is news")
	}
	d.remember(7)
	d.expect(false)
	if d.foreign(made) {
		t.Error("we have made it, and that is news")
	}
}

// TestWhatWeHold follows the results of what we did.
func TestWhatWeHold(t *testing.T) {
	d := &Device{index: 7, held: map[netip.Addr]struct{}{}}
	both := []netip.Addr{four, six}
	holds := func(when string, want ...netip.Addr) {
		t.Helper()
		for _, a := range both {
			if _, held := d.held[a]; held != slices.Contains(want, a) {
				t.Errorf("%s: %s held %t", when, a, held)
			}
		}
	}
	no := []error{nil, unix.EPERM}
	d.hold(both, nil, true)
	holds("before adding", four, six)
	d.hold(both, no, false)
	holds("after adding", four)
	d.hold(both, nil, false)
	holds("before removing")
	d.hold(both, no, true)
	holds("after removing", six)
	d.hold(both, []error{ErrUnanswered, ErrUnanswered}, false)
	holds("after a lost answer", six)
	d.saw(unix.AF_INET, []netip.Addr{four})
	holds("after looking at one family", four, six)
	d.remember(8)
	holds("with another device")
}

func TestResults(t *testing.T) {
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
		"refused":              {true, unix.EACCES, unix.EACCES, false},
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
