package reduce

import (
	"net/netip"
	"testing"
)

func TestParseAddr(t *testing.T) {
	tests := []struct {
		text string
		want string // empty: refused
	}{
		{"10.0.0.1", "10.0.0.1"},
		{"010.0.0.1", "10.0.0.1"},
		{"192.000.002.099", "192.0.2.99"},
		{"0.0.0.0", "0.0.0.0"},
		{"000.00.0.0000", "0.0.0.0"},
		{"fd00::1", "fd00::1"},
		{"FD00:0:0::0001", "fd00::1"},
		{"::ffff:1.2.3.4", "1.2.3.4"},
		{"::ffff:01.02.03.04", "1.2.3.4"},
		{"::ffff:102:304", "1.2.3.4"},
		{"64:ff9b::010.0.0.1", "64:ff9b::a00:1"},

		{"", ""},
		{" 10.0.0.1", ""},
		{"10.0.0", ""},
		{"10.0.0.1.", ""},
		{"10.0.0..1", ""},
		{"10.0.0.256", ""},
		{"10.0.0.0x1", ""},
		{"10.0.0.-1", ""},
		{"10.0.0.1:80", ""},
		{"fe80::1%eth0", ""},
		{"::ffff:1.2.3.4%eth0", ""},
		{"10.0.0.0/8", ""},
		{"None", ""},
	}
	for _, tt := range tests {
		got, ok := parseAddr(tt.text)
		if ok != (tt.want != "") || (ok && got != netip.MustParseAddr(tt.want)) {
			t.Errorf("parseAddr(%q) = %s, %v, want %q", tt.text, got, ok, tt.want)
		}
	}
}

func TestParsePrefix(t *testing.T) {
	tests := []struct {
		text string
		want string // empty: refused
	}{
		{"10.0.0.0/8", "10.0.0.0/8"},
		{"10.1.2.3/8", "10.0.0.0/8"},
		{"010.001.0.0/016", "10.1.0.0/16"},
		{"203.0.113.7/32", "203.0.113.7/32"},
		{"0.0.0.0/0", "0.0.0.0/0"},
		{"1.2.3.4/0", "0.0.0.0/0"},
		{"fd00::1/64", "fd00::/64"},
		{"::/0", "::/0"},
		{"fd00::1/128", "fd00::1/128"},
		{"::ffff:10.1.2.3/104", "10.0.0.0/8"},
		{"::ffff:10.1.2.3/128", "10.1.2.3/32"},

		{"", ""},
		{"/", ""},
		{"10.0.0.0", ""},
		{"10.0.0.0/", ""},
		{"10.0.0.0/33", ""},
		{"10.0.0.0/-1", ""},
		{"10.0.0.0/+8", ""},
		{"10.0.0.0/8/8", ""},
		{"10.0.0.0/255.0.0.0", ""},
		{"fd00::/129", ""},
		{"fd00::/999", ""},
		{"::ffff:10.1.2.3/8", ""},
		{"fe80::%eth0/64", ""},
		{"bad/8", ""},
	}
	for _, tt := range tests {
		got, ok := parsePrefix(tt.text)
		if ok != (tt.want != "") || (ok && got != netip.MustParsePrefix(tt.want)) {
			t.Errorf("parsePrefix(%q) = %s, %v, want %q", tt.text, got, ok, tt.want)
		}
	}
}

// TestAddressesReadTwiceAreTheSame: what goes to the kernel is canonical.
func TestAddressesReadTwiceAreTheSame(t *testing.T) {
	for _, text := range []string{"010.0.0.1", "::ffff:1.2.3.4", "FD00::01"} {
		once, _ := parseAddr(text)
		twice, ok := parseAddr(once.String())
		if !ok || once != twice {
			t.Errorf("%q: %s, then %s", text, once, twice)
		}
	}
}
