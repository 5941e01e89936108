// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"testing"
)

func TestAddressPolicy(t *testing.T) {
	policy := AddressPolicy{Denied: []netip.Prefix{netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("fd00:ec2::/64")}}
	for text, want := range map[string]string{
		"10.244.1.5":             "",
		"2001:db8::1":            "",
		"203.0.113.7":            "",
		"168.63.129.17":          "",
		"0.0.0.0":                "0.0.0.0 must not be the unspecified address",
		"::":                     ":: must not be the unspecified address",
		"127.0.0.1":              "127.0.0.1 must not be a loopback address",
		"127.255.255.254":        "127.255.255.254 must not be a loopback address",
		"::1":                    "::1 must not be a loopback address",
		"::ffff:127.0.0.1":       "127.0.0.1 must not be a loopback address",
		"169.254.169.254":        "169.254.169.254 must not be a link-local address",
		"::ffff:169.254.169.254": "169.254.169.254 must not be a link-local address",
		"fe80::1":                "fe80::1 must not be a link-local address",
		"224.0.0.1":              "224.0.0.1 must not be a multicast address",
		"ff02::1":                "ff02::1 must not be a multicast address",
		"168.63.129.16":          "168.63.129.16 must not be in 168.63.129.16/32, which addresses.denied contains",
		"::ffff:168.63.129.16":   "168.63.129.16 must not be in 168.63.129.16/32, which addresses.denied contains",
		"fd00:ec2::254":          "fd00:ec2::254 must not be in fd00:ec2::/64, which addresses.denied contains",
	} {
		got := ""
		if err := policy.Check(netip.MustParseAddr(text)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if err := (AddressPolicy{}).Check(netip.MustParseAddr("168.63.129.16")); err != nil {
		t.Errorf("without a list: %v", err)
	}
}
