package reduce

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/service"
)

func TestExternalIPs(t *testing.T) {
	tests := []struct {
		name   string
		texts  []string
		want   service.PerFamily[[]netip.Addr]
		warned []string
	}{
		{"none", nil, service.PerFamily[[]netip.Addr]{}, nil},
		{"both families, API order", []string{"192.0.2.99", "2001:db8::99", "192.0.2.1"},
			service.PerFamily[[]netip.Addr]{addrs("192.0.2.99", "192.0.2.1"), addrs("2001:db8::99")}, nil},
		{"the invalid is skipped, the blank not even mentioned", []string{"", "bad", "192.0.2.99", "  "},
			service.PerFamily[[]netip.Addr]{addrs("192.0.2.99")}, []string{"spec.externalIPs[1]"}},
		{"canonical", []string{"192.000.002.099", "::ffff:192.0.2.1"},
			service.PerFamily[[]netip.Addr]{addrs("192.0.2.99", "192.0.2.1")}, nil},
		{"no duplicates, however spelled", []string{"192.0.2.99", "192.0.2.099", "2001:db8::99", "2001:DB8:0::99"},
			service.PerFamily[[]netip.Addr]{addrs("192.0.2.99"), addrs("2001:db8::99")}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec, warnings := Service(newService(func(o *corev1.Service) { o.Spec.ExternalIPs = tt.texts }))
			if !sameLists(spec.ExternalIPs, tt.want) {
				t.Errorf("got %v, want %v", spec.ExternalIPs, tt.want)
			}
			checkWarnings(t, warnings, "Service ns1/svc1", tt.warned...)
		})
	}
}

func TestLoadBalancerIngress(t *testing.T) {
	vip, proxy, unknown := corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPMode("Odd")
	tests := []struct {
		name    string
		ingress []corev1.LoadBalancerIngress
		want    service.PerFamily[[]netip.Addr]
		warned  []string
	}{
		{"none", nil, service.PerFamily[[]netip.Addr]{}, nil},
		{"no mode means VIP", []corev1.LoadBalancerIngress{{IP: "192.0.2.5"}},
			service.PerFamily[[]netip.Addr]{addrs("192.0.2.5")}, nil},
		{"VIP", []corev1.LoadBalancerIngress{{IP: "192.0.2.5", IPMode: &vip}},
			service.PerFamily[[]netip.Addr]{addrs("192.0.2.5")}, nil},
		{"Proxy is left alone", []corev1.LoadBalancerIngress{{IP: "192.0.2.5", IPMode: &proxy}},
			service.PerFamily[[]netip.Addr]{}, nil},
		{"one of each", []corev1.LoadBalancerIngress{{IP: "192.0.2.5", IPMode: &proxy}, {IP: "192.0.2.6", IPMode: &vip}},
			service.PerFamily[[]netip.Addr]{addrs("192.0.2.6")}, nil},
		{"unknown mode", []corev1.LoadBalancerIngress{{IP: "192.0.2.5", IPMode: &unknown}},
			service.PerFamily[[]netip.Addr]{}, []string{"status.loadBalancer.ingress[0].ipMode"}},
		{"host name only", []corev1.LoadBalancerIngress{{Hostname: "lb.example.com"}},
			service.PerFamily[[]netip.Addr]{}, nil},
		{"both families", []corev1.LoadBalancerIngress{{IP: "2001:db8::5"}, {IP: "192.0.2.5"}},
			service.PerFamily[[]netip.Addr]{addrs("192.0.2.5"), addrs("2001:db8::5")}, nil},
		{"duplicates", []corev1.LoadBalancerIngress{{IP: "192.0.2.5"}, {IP: "192.0.2.05"}},
			service.PerFamily[[]netip.Addr]{addrs("192.0.2.5")}, nil},
		{"unparsable", []corev1.LoadBalancerIngress{{IP: "192.0.2.5"}, {IP: "bad"}},
			service.PerFamily[[]netip.Addr]{addrs("192.0.2.5")}, []string{"status.loadBalancer.ingress[1].ip"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec, warnings := Service(newService(loadBalancer, func(o *corev1.Service) {
				o.Status.LoadBalancer.Ingress = tt.ingress
			}))
			if !sameLists(spec.LoadBalancerVIPs, tt.want) {
				t.Errorf("got %v, want %v", spec.LoadBalancerVIPs, tt.want)
			}
			checkWarnings(t, warnings, "Service ns1/svc1", tt.warned...)
		})
	}
}

func TestSourceRanges(t *testing.T) {
	const list = "spec.loadBalancerSourceRanges"
	tests := []struct {
		name   string
		texts  []string
		want   service.PerFamily[[]netip.Prefix]
		warned []string
	}{
		{"none", nil, service.PerFamily[[]netip.Prefix]{}, nil},
		{"one", []string{"203.0.113.0/25"}, service.PerFamily[[]netip.Prefix]{prefixes("203.0.113.0/25")}, nil},
		{"white space around", []string{" 203.0.113.0/25 ", "\t2001:db8::/32"},
			service.PerFamily[[]netip.Prefix]{prefixes("203.0.113.0/25"), prefixes("2001:db8::/32")}, nil},
		{"masked, API order", []string{"203.0.113.77/25", "10.0.0.1/8"},
			service.PerFamily[[]netip.Prefix]{prefixes("203.0.113.0/25", "10.0.0.0/8")}, nil},
		{"one for everyone opens its family", []string{"203.0.113.0/25", "0.0.0.0/0", "2001:db8::/32"},
			service.PerFamily[[]netip.Prefix]{nil, prefixes("2001:db8::/32")}, nil},
		{"one for everyone first", []string{"::/0", "2001:db8::/32"}, service.PerFamily[[]netip.Prefix]{}, nil},
		{"only the other family", []string{"2001:db8:ffff::/112"},
			service.PerFamily[[]netip.Prefix]{nil, prefixes("2001:db8:ffff::/112")}, nil},
		{"the invalid is skipped, the blank not even mentioned", []string{"bad", "", " ", "203.0.113.0/25"},
			service.PerFamily[[]netip.Prefix]{prefixes("203.0.113.0/25")}, []string{list + "[0]"}},
		{"invalid only: open, and said so", []string{"bad", "10.0.0.1"}, service.PerFamily[[]netip.Prefix]{},
			[]string{list + "[0]", list + "[1]", list}},
		{"blank only", []string{"", " "}, service.PerFamily[[]netip.Prefix]{}, nil},
		{"duplicates", []string{"10.0.0.0/8", "10.1.0.0/8"},
			service.PerFamily[[]netip.Prefix]{prefixes("10.0.0.0/8")}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec, warnings := Service(newService(loadBalancer, func(o *corev1.Service) {
				o.Spec.LoadBalancerSourceRanges = tt.texts
				// The old annotation has no effect.
				o.Annotations = map[string]string{corev1.AnnotationLoadBalancerSourceRangesKey: "192.0.2.0/24"}
			}))
			if !sameLists(spec.SourceRanges, tt.want) {
				t.Errorf("got %v, want %v", spec.SourceRanges, tt.want)
			}
			checkWarnings(t, warnings, "Service ns1/svc1", tt.warned...)
		})
	}
}
