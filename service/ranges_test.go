// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestMergeRanges(t *testing.T) {
	for given, want := range map[string]string{
		"":                                   "",
		"10.1.2.3/24":                        "10.1.2.0/24",
		"10.0.0.0/8 10.1.0.0/16 10.2.3.4/32": "10.0.0.0/8",
		"10.0.0.0/24 10.0.0.0/24":            "10.0.0.0/24",
		"10.0.1.0/24 10.0.0.0/24":            "10.0.0.0/23",
		"10.0.1.0/24 10.0.2.0/24":            "10.0.1.0/24 10.0.2.0/24",
		"10.0.0.0/24 10.0.1.0/25 10.0.1.128/25 10.0.2.0/23":     "10.0.0.0/22",
		"10.1.0.0/16 10.0.0.0/8 192.0.2.7/32 10.255.255.255/32": "10.0.0.0/8 192.0.2.7/32",
		"fd00::/64 fd00::1/128 fd00:0:0:1::/64":                 "fd00::/63",
		"0.0.0.0/1 128.0.0.0/1":                                 "0.0.0.0/0",
		"2001:db8::/128 2001:db8::1/128":                        "2001:db8::/127",
		"2001:db8::1/128 2001:db8::2/128":                       "2001:db8::1/128 2001:db8::2/128",
		"255.255.255.255/32 255.255.255.254/32 ::/1 8000::/1":   "255.255.255.254/31 ::/0",
	} {
		var prefixes []netip.Prefix
		for _, text := range strings.Fields(given) {
			prefixes = append(prefixes, netip.MustParsePrefix(text))
		}
		before := slices.Clone(prefixes)
		var got []string
		for _, p := range MergeRanges(prefixes) {
			got = append(got, p.String())
		}
		if strings.Join(got, " ") != want || !slices.Equal(prefixes, before) {
			t.Errorf("%q: got %v, want %q", given, got, want)
		}
	}
}
