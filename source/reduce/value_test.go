// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
)

func TestParseAddr(t *testing.T) {
	tests := []struct {
		text string
		want string // empty: rejected
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
		want string // empty: rejected
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

// TestParseAddr_Canonical: an address that is parsed, printed and parsed again is the same, so the kernel gets the
// canonical form.
func TestParseAddr_Canonical(t *testing.T) {
	for _, text := range []string{"010.0.0.1", "::ffff:1.2.3.4", "FD00::01"} {
		once, _ := parseAddr(text)
		twice, ok := parseAddr(once.String())
		if !ok || once != twice {
			t.Errorf("%q: %s, then %s", text, once, twice)
		}
	}
}

func TestPortNumber(t *testing.T) {
	tests := []struct {
		number int32
		want   uint16
		ok     bool
	}{{0, 0, false}, {1, 1, true}, {65535, 65535, true}, {65536, 0, false}, {-1, 0, false}}
	for _, tt := range tests {
		if got, ok := portNumber(tt.number); got != tt.want || ok != tt.ok {
			t.Errorf("portNumber(%d) = %d, %v", tt.number, got, ok)
		}
	}
}

func TestFamilyOf(t *testing.T) {
	if f, ok := familyOf(corev1.IPv6Protocol); f != service.IPv6 || !ok {
		t.Errorf("got %s, %v", f, ok)
	}
	if f, ok := familyOf(discoveryv1.AddressTypeIPv4); f != service.IPv4 || !ok {
		t.Errorf("got %s, %v", f, ok)
	}
	if _, ok := familyOf(discoveryv1.AddressTypeFQDN); ok {
		t.Error("FQDN is no family")
	}
}

func TestIntern_Shares(t *testing.T) {
	text := "node-of-TestIntern_Shares"
	first, second := intern(strings.Clone(text)), intern(strings.Clone(text))
	if first != text || second != text {
		t.Fatalf("got %q and %q", first, second)
	}
	if unsafe.StringData(first) != unsafe.StringData(second) {
		t.Error("two copies of one name")
	}
}

// TestIntern_DoesNotPin: an interned name does not keep the memory of the whole object alive.
func TestIntern_DoesNotPin(t *testing.T) {
	large := strings.Repeat("x", 1000) + "node-of-TestIntern_DoesNotPin"
	name := large[1000:]
	if unsafe.StringData(intern(name)) == unsafe.StringData(name) {
		t.Error("the result is part of the object")
	}
}

// TestIntern_UnderPressure: intern returns equal names with more names than slots, from many goroutines.
func TestIntern_UnderPressure(t *testing.T) {
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range 2 * internSlots {
				if want := fmt.Sprint(i); intern(want) != want {
					t.Errorf("intern(%q) is something else", want)
				}
			}
		})
	}
	group.Wait()
}

func TestIntern_Empty(t *testing.T) {
	if intern("") != "" {
		t.Error("empty is not empty")
	}
}

// TestEach_LongListsNotSearched: a list is searched for a value only while it is short.
func TestEach_LongListsNotSearched(t *testing.T) {
	var found each[int]
	for round := range 2 {
		for i := range 10 * searched {
			found.add(service.Families[i%2], i)
			if length := max(len(found.once[0]), len(found.once[1])); length > searched && len(found.seen) == 0 {
				t.Fatalf("round %d: a list of %d is searched", round, length)
			}
		}
	}
	if len(found.once[0])+len(found.once[1]) != 10*searched || found.once[0][1] != 2 {
		t.Errorf("%d and %d values", len(found.once[0]), len(found.once[1]))
	}
}
