// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"net/netip"
	"testing"
)

func TestEndpoint_String(t *testing.T) {
	for _, text := range []string{"10.0.0.1:80", "[fd00::1]:80"} {
		e := Endpoint{AddrPort: netip.MustParseAddrPort(text)}
		if e.String() != text {
			t.Errorf("got %q, want %q", e, text)
		}
	}
}

func TestEndpoint_Compare(t *testing.T) {
	texts := []string{
		"10.0.0.1:8", "10.0.0.1:80", "10.0.0.9:80", "10.0.0.10:80", "255.255.255.255:65535",
		"[fd00::1]:80", "[fd00::1:0]:80", "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
	}
	for i, a := range texts {
		for j, b := range texts {
			got := Endpoint{AddrPort: netip.MustParseAddrPort(a)}.Compare(Endpoint{AddrPort: netip.MustParseAddrPort(b)})
			if got != cmp.Compare(i, j) {
				t.Errorf("Compare(%s, %s) = %d", a, b, got)
			}
		}
	}
}

// TestEndpoint_CompareDoesNotAllocate: comparing two endpoints allocates nothing.
func TestEndpoint_CompareDoesNotAllocate(t *testing.T) {
	a := Endpoint{AddrPort: netip.MustParseAddrPort("[fd00::1]:80")}
	b := Endpoint{AddrPort: netip.MustParseAddrPort("[fd00::2]:80")}
	if n := testing.AllocsPerRun(10, func() { a.Compare(b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
