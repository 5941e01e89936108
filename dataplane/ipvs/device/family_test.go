package device

import (
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Another Device keeps the addresses of the other family, which are no news.
func TestADeviceOfOneFamilyIsToldOfThatAlone(t *testing.T) {
	for family, want := range map[int]map[netip.Addr]bool{
		unix.AF_UNSPEC: {four: true, six: true},
		unix.AF_INET:   {four: true, six: false},
		unix.AF_INET6:  {four: false, six: true},
	} {
		d := &Device{index: 7, family: family, held: map[netip.Addr]struct{}{}}
		for a, told := range want {
			if got := d.foreign([]syscall.NetlinkMessage{announcedAddress(unix.RTM_NEWADDR, 7, a, a.BitLen())}); got != told {
				t.Errorf("family %d: %s is told of: %t", family, a, got)
			}
		}
	}
}
