package reduce

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/service"
)

func TestIgnoredServices(t *testing.T) {
	tests := []struct {
		name   string
		change func(*corev1.Service)
		warned []string
	}{
		{"headless", func(o *corev1.Service) {
			o.Spec.ClusterIP, o.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
		}, nil},
		{"no ClusterIP", func(o *corev1.Service) { o.Spec.ClusterIP, o.Spec.ClusterIPs = "", nil }, nil},
		{"no ClusterIP, whatever the list says", func(o *corev1.Service) { o.Spec.ClusterIP = "" }, nil},
		{"ExternalName", func(o *corev1.Service) {
			o.Spec.Type, o.Spec.ClusterIP, o.Spec.ClusterIPs = corev1.ServiceTypeExternalName, "", nil
		}, nil},
		{"ExternalName with a ClusterIP left", func(o *corev1.Service) {
			o.Spec.Type = corev1.ServiceTypeExternalName
		}, nil},
		{"no namespace", func(o *corev1.Service) { o.Namespace = "" }, []string{"metadata"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec, warnings := Service(newService(tt.change))
			if spec != nil {
				t.Errorf("got %+v, want nil", spec)
			}
			checkWarnings(t, warnings, "Service svc1", tt.warned...)
		})
	}
}

// TestServiceIsReducedWhole: one Service with everything in it.
func TestServiceIsReducedWhole(t *testing.T) {
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	local := corev1.ServiceInternalTrafficPolicyLocal
	spec, warnings := Service(newService(loadBalancer, func(o *corev1.Service) {
		o.CreationTimestamp = metav1.NewTime(created)
		// A label that the source selects by is none of our business.
		o.Labels = map[string]string{corev1.IsHeadlessService: ""}
		o.Spec.InternalTrafficPolicy = &local
		o.Spec.ExternalIPs = []string{"192.0.2.99"}
		o.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/25"}
		o.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		o.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(600))},
		}
	}))
	want := &service.Spec{
		Key:     service.Key{Namespace: "ns1", Name: "svc1"},
		Created: created,
		ClusterIPs: service.PerFamily[netip.Addr]{
			netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00:10:96::1"),
		},
		Ports:               []service.Port{{Name: "p80", Protocol: service.TCP, Port: 80, NodePort: 30080}},
		ExternalIPs:         service.PerFamily[[]netip.Addr]{addrs("192.0.2.99")},
		LoadBalancerVIPs:    service.PerFamily[[]netip.Addr]{addrs("192.0.2.5"), addrs("2001:db8::5")},
		SourceRanges:        service.PerFamily[[]netip.Prefix]{prefixes("203.0.113.0/25")},
		InternalLocal:       true,
		ExternalLocal:       true,
		HealthCheckNodePort: 32000,
		AffinitySeconds:     600,
	}
	if !spec.Equal(want) {
		t.Errorf("got  %+v\nwant %+v", spec, want)
	}
	checkWarnings(t, warnings, "Service ns1/svc1")
}

// TestBadFieldsDoNotStopOthers: a Service with all kinds of invalid data at once
// is still served as far as it makes sense.
func TestBadFieldsDoNotStopOthers(t *testing.T) {
	spec, warnings := Service(newService(loadBalancer, func(o *corev1.Service) {
		o.Spec.ExternalIPs = []string{"bad", "192.0.2.99"}
		o.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8", "bad"}
		o.Spec.HealthCheckNodePort = 0
		o.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: "odd", Protocol: "ICMP", Port: 1})
	}))
	if len(spec.Ports) != 1 || len(spec.ExternalIPs[service.IPv4]) != 1 ||
		len(spec.SourceRanges[service.IPv4]) != 1 || len(spec.LoadBalancerVIPs[service.IPv4]) != 1 {
		t.Errorf("got %+v", spec)
	}
	checkWarnings(t, warnings, "Service ns1/svc1",
		"spec.ports[1].protocol",
		"spec.externalIPs[0]",
		"spec.loadBalancerSourceRanges[1]",
		"spec.healthCheckNodePort",
		"spec.sessionAffinityConfig.clientIP.timeoutSeconds",
	)
}
