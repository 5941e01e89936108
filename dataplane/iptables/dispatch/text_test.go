package dispatch

import (
	"net/netip"
	"testing"
)

// What iptables-save 1.8.9 and ip6tables-save 1.8.9 print, in both variants; the
// kernel test of package iptables compares with the tools themselves.
func TestAppendPrefix(t *testing.T) {
	for _, test := range []struct{ prefix, want string }{
		{"10.1.2.3/32", "10.1.2.3/32"},
		{"10.1.2.3/8", "10.0.0.0/8"},
		{"fd00::1/128", "fd00::1/128"},
		{"1:0:2::/48", "1:0:2::/48"},
		{"0:1:2:3:4:5:6:7/128", "0:1:2:3:4:5:6:7/128"},
		{"::ffff:0:0/100", "::ffff:0.0.0.0/100"},
		{"::102:304/128", "::1.2.3.4/128"},
		{"::1:0/128", "::0.1.0.0/128"},
		{"::1/128", "::1/128"},
		{"::/1", "::/1"},
	} {
		if got := string(AppendPrefix(nil, netip.MustParsePrefix(test.prefix))); got != test.want {
			t.Errorf("%s is printed as %q, want %q", test.prefix, got, test.want)
		}
	}
}
