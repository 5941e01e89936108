// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"net/netip"
	"testing"
)

func TestParseAnswer(t *testing.T) {
	for line, want := range map[string]Answer{
		"b 10.0.0.1:80\n":  {"b", netip.MustParseAddrPort("10.0.0.1:80")},
		"b [fd00::1]:8080": {"b", netip.MustParseAddrPort("[fd00::1]:8080")},
	} {
		if got, err := ParseAnswer(line); err != nil || got != want {
			t.Errorf("ParseAnswer(%q) = %+v, %v; want %+v", line, got, err, want)
		}
	}
	for _, line := range []string{"", "b", "b 10.0.0.1", "HTTP/1.1 400 Bad Request\n"} {
		if got, err := ParseAnswer(line); err == nil {
			t.Errorf("ParseAnswer(%q) = %+v, want an error", line, got)
		}
	}
}
