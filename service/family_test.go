// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"testing"
)

func TestFamily(t *testing.T) {
	tests := []struct {
		address string
		family  Family
		text    string
		bits    int
	}{
		{"10.0.0.1", IPv4, "IPv4", 32},
		{"fd00::1", IPv6, "IPv6", 128},
		{"::ffff:10.0.0.1", IPv6, "IPv6", 128},
	}
	for _, tt := range tests {
		got := FamilyOf(netip.MustParseAddr(tt.address))
		if got != tt.family || got.String() != tt.text || got.Bits() != tt.bits {
			t.Errorf("%s: got %s with %d bits", tt.address, got, got.Bits())
		}
	}
}
