// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"net/netip"
	"testing"
)

func TestAddress(t *testing.T) {
	for _, c := range []struct {
		first string
		n     int
		want  string
	}{
		{"10.0.0.250", 10, "10.0.1.4"}, {"10.128.0.0", 0, "10.128.0.0"}, {"10.128.0.0", 200256, "10.131.14.64"},
		{"fd00:96::", 256, "fd00:96::100"}, {"fd00:96::fff0", 16, "fd00:96::1:0"},
	} {
		if got := Address(netip.MustParseAddr(c.first), c.n); got != netip.MustParseAddr(c.want) {
			t.Errorf("%s + %d = %s, want %s", c.first, c.n, got, c.want)
		}
	}
}
