package reduce

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
)

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

func TestFamilyNames(t *testing.T) {
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
