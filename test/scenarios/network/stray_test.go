// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"strings"
	"testing"
)

func TestSegment_Checksum(t *testing.T) {
	for _, pair := range [][2]string{
		{"10.244.2.20:8080", "10.244.1.14:40001"},
		{"[fd00:10:244:2::20]:8080", "[fd00:10:244:1::14]:40001"},
	} {
		from, to := netip.MustParseAddrPort(pair[0]), netip.MustParseAddrPort(pair[1])
		s := segment(from, to, 0x90000000, 7)
		// The checksum over a segment with its checksum is zero.
		whole := append(from.Addr().AsSlice(), to.Addr().AsSlice()...)
		whole = append(whole, 0, 6, 0, byte(len(s)))
		whole = append(append(whole, s...), 0)
		if got := checksum(whole); got != 0 {
			t.Errorf("%v: the checksum is wrong by %#x", pair, got)
		}
	}
}

func TestParseResets(t *testing.T) {
	const table = "Ip: Forwarding\nIp: 1\nTcp: InSegs OutRsts InCsumErrors\nTcp: 10 3 0\n"
	if n, err := parseResets(table); n != 3 || err != nil {
		t.Errorf("%d, %v, want 3", n, err)
	}
	if _, err := parseResets(strings.ReplaceAll(table, "OutRsts", "Other")); err == nil {
		t.Error("no error without a count")
	}
}
