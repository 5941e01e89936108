package reduce

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestClusterIPOfFamily(t *testing.T) {
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	tests := []struct {
		name       string
		clusterIP  string
		clusterIPs []string
		families   []corev1.IPFamily
		want4      string
		want6      string
		warned     []string
	}{
		{"IPv4", "10.96.0.1", []string{"10.96.0.1"}, []corev1.IPFamily{v4}, "10.96.0.1", "", nil},
		{"IPv6", "fd00::1", []string{"fd00::1"}, []corev1.IPFamily{v6}, "", "fd00::1", nil},
		{"dual-stack", "10.96.0.1", []string{"10.96.0.1", "fd00::1"}, []corev1.IPFamily{v4, v6}, "10.96.0.1", "fd00::1", nil},
		{"dual-stack, IPv6 first", "fd00::1", []string{"fd00::1", "10.96.0.1"}, []corev1.IPFamily{v6, v4}, "10.96.0.1", "fd00::1", nil},
		{"from before dual-stack, IPv4", "10.96.0.1", nil, nil, "10.96.0.1", "", nil},
		{"from before dual-stack, IPv6", "fd00::1", nil, nil, "", "fd00::1", nil},
		{"no families: clusterIPs has no say", "10.96.0.1", []string{"10.96.0.1", "fd00::1"}, nil, "10.96.0.1", "", nil},
		{"fewer addresses than families", "10.96.0.1", []string{"10.96.0.1"}, []corev1.IPFamily{v4, v6}, "10.96.0.1", "", []string{"spec.clusterIPs[1]"}},
		{"a family repeated", "10.96.0.1", []string{"10.96.0.1", "10.96.0.2"}, []corev1.IPFamily{v4, v4}, "10.96.0.1", "", nil},
		{"lenient", "010.96.0.1", []string{"010.96.0.1"}, []corev1.IPFamily{v4}, "10.96.0.1", "", nil},
		{"one unparsable", "10.96.0.1", []string{"10.96.0.1", "bad"}, []corev1.IPFamily{v4, v6}, "10.96.0.1", "", []string{"spec.clusterIPs[1]"}},
		{"of the other family", "fd00::1", []string{"fd00::1"}, []corev1.IPFamily{v4}, "", "", []string{"spec.clusterIPs[0]"}},
		{"unknown family", "10.96.0.1", []string{"bad", "10.96.0.1"}, []corev1.IPFamily{"IPv5", v4}, "10.96.0.1", "", []string{"spec.ipFamilies[0]"}},
		{"old and unparsable", "bad", nil, nil, "", "", []string{"spec.clusterIP"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec, warnings := Service(newService(func(o *corev1.Service) {
				o.Spec.ClusterIP, o.Spec.ClusterIPs, o.Spec.IPFamilies = tt.clusterIP, tt.clusterIPs, tt.families
			}))
			for i, want := range []string{tt.want4, tt.want6} {
				var addr netip.Addr
				if want != "" {
					addr = netip.MustParseAddr(want)
				}
				if spec.ClusterIPs[i] != addr {
					t.Errorf("got %v, want %q and %q", spec.ClusterIPs, tt.want4, tt.want6)
				}
			}
			checkWarnings(t, warnings, "Service ns1/svc1", tt.warned...)
		})
	}
}
