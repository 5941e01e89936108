// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-proxy/sluice/service"
)

func TestService_Ignored(t *testing.T) {
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
			spec, warnings := lenient.Service(newService(tt.change))
			if spec != nil {
				t.Errorf("got %+v, want nil", spec)
			}
			checkWarnings(t, warnings, "Service svc1", tt.warned...)
		})
	}
}

// TestService_RuleBreakingNames: names that would break a rule are rejected. API servers admit no such names, but
// manifests may contain them.
func TestService_RuleBreakingNames(t *testing.T) {
	const rule = "svc1\"\n-A INPUT -j DROP"
	for _, name := range []string{rule, "a b", "a/b", "a:b", "ä", "\x00", strings.Repeat("a", 64)} {
		for field, change := range map[string]func(*corev1.Service){
			"metadata.name":      func(o *corev1.Service) { o.Name = name },
			"metadata.namespace": func(o *corev1.Service) { o.Namespace = name },
			"spec.ports[0].name": func(o *corev1.Service) { o.Spec.Ports[0].Name = name },
		} {
			spec, warnings := lenient.Service(newService(change))
			if len(warnings) != 1 || warnings[0].Field != field || strings.Contains(warnings[0].String(), "\n") ||
				strings.Contains(warnings[0].Object, "\n") {
				t.Errorf("%s %q: warnings %+q", field, name, warnings)
			}
			if spec != nil && (field != "spec.ports[0].name" || len(spec.Ports) != 0) {
				t.Errorf("%s %q: %+v", field, name, spec)
			}
		}
	}
	_, warnings := lenient.Service(newService(func(o *corev1.Service) { o.Name = rule }))
	if want := `Service "ns1/svc1\"\n-A INPUT -j DROP"`; warnings[0].Object != want {
		t.Errorf("the warning is about %s, want %s", warnings[0].Object, want)
	}
}

// TestService_ReducedWhole: a Service with all fields set is reduced completely.
func TestService_ReducedWhole(t *testing.T) {
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	local := corev1.ServiceInternalTrafficPolicyLocal
	spec, warnings := lenient.Service(newService(loadBalancer, func(o *corev1.Service) {
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

// TestService_BadFieldsDoNotStopOthers: a Service with several invalid fields is served with its valid ones, and each
// invalid field has a warning.
func TestService_BadFieldsDoNotStopOthers(t *testing.T) {
	spec, warnings := lenient.Service(newService(loadBalancer, func(o *corev1.Service) {
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

// TestService_ClusterIPOfFamily: each family gets its ClusterIP from clusterIPs and ipFamilies, or from clusterIP if
// there are no families.
func TestService_ClusterIPOfFamily(t *testing.T) {
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
			spec, warnings := lenient.Service(newService(func(o *corev1.Service) {
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

func TestService_Ports(t *testing.T) {
	tests := []struct {
		name   string
		ports  []corev1.ServicePort
		want   []service.Port
		warned []string
	}{
		{"none", nil, nil, nil},
		{"API order, every protocol",
			[]corev1.ServicePort{
				{Name: "z", Protocol: corev1.ProtocolSCTP, Port: 1, NodePort: 30001},
				{Name: "a", Protocol: corev1.ProtocolUDP, Port: 65535},
				{Name: "", Protocol: corev1.ProtocolTCP, Port: 80},
			},
			[]service.Port{
				{Name: "z", Protocol: service.SCTP, Port: 1, NodePort: 30001},
				{Name: "a", Protocol: service.UDP, Port: 65535},
				{Name: "", Protocol: service.TCP, Port: 80},
			}, nil},
		{"target port and app protocol have no say",
			[]corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080), AppProtocol: new("http")}},
			[]service.Port{{Port: 80}}, nil},
		{"same node port, another protocol",
			[]corev1.ServicePort{
				{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, NodePort: 30053},
				{Name: "dns", Protocol: corev1.ProtocolTCP, Port: 53, NodePort: 30053},
			},
			[]service.Port{
				{Name: "dns", Protocol: service.UDP, Port: 53, NodePort: 30053},
				{Name: "dns", Protocol: service.TCP, Port: 53, NodePort: 30053},
			}, nil},
		{"numbers out of range",
			[]corev1.ServicePort{{Name: "a", Port: 0}, {Name: "b", Port: 70000}, {Name: "c", Port: -1}, {Name: "d", Port: 80}},
			[]service.Port{{Name: "d", Port: 80}},
			[]string{"spec.ports[0].port", "spec.ports[1].port", "spec.ports[2].port"}},
		{"node port out of range costs the node port",
			[]corev1.ServicePort{{Name: "a", Port: 80, NodePort: 70000}, {Name: "b", Port: 81, NodePort: -1}},
			[]service.Port{{Name: "a", Port: 80}, {Name: "b", Port: 81}},
			[]string{"spec.ports[0].nodePort", "spec.ports[1].nodePort"}},
		{"node port of any range", []corev1.ServicePort{{Port: 80, NodePort: 22}},
			[]service.Port{{Port: 80, NodePort: 22}}, nil},
		{"unknown protocol",
			[]corev1.ServicePort{{Name: "a", Protocol: "ICMP", Port: 80}, {Name: "b", Protocol: "tcp", Port: 81}, {Name: "c", Port: 82}},
			[]service.Port{{Name: "c", Port: 82}},
			[]string{"spec.ports[0].protocol", "spec.ports[1].protocol"}},
		{"duplicates: the first is kept",
			[]corev1.ServicePort{{Name: "a", Port: 80}, {Name: "a", Port: 81}, {Name: "b", Port: 82}},
			[]service.Port{{Name: "a", Port: 80}, {Name: "b", Port: 82}},
			[]string{"spec.ports[1]"}},
		{"a port that is left out does not displace another",
			[]corev1.ServicePort{{Name: "a", Port: 0}, {Name: "a", Port: 81}},
			[]service.Port{{Name: "a", Port: 81}},
			[]string{"spec.ports[0].port"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec, warnings := lenient.Service(newService(func(o *corev1.Service) { o.Spec.Ports = tt.ports }))
			if !slices.Equal(spec.Ports, tt.want) {
				t.Errorf("got %+v, want %+v", spec.Ports, tt.want)
			}
			checkWarnings(t, warnings, "Service ns1/svc1", tt.warned...)
		})
	}
}

func TestService_ExternalIPs(t *testing.T) {
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
			spec, warnings := lenient.Service(newService(func(o *corev1.Service) { o.Spec.ExternalIPs = tt.texts }))
			if !sameLists(spec.ExternalIPs, tt.want) {
				t.Errorf("got %v, want %v", spec.ExternalIPs, tt.want)
			}
			checkWarnings(t, warnings, "Service ns1/svc1", tt.warned...)
		})
	}
}

// TestService_LoadBalancerIngress: load balancer IPs are served in VIP mode and without a mode, and ignored in Proxy
// mode.
func TestService_LoadBalancerIngress(t *testing.T) {
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
			spec, warnings := lenient.Service(newService(loadBalancer, func(o *corev1.Service) {
				o.Status.LoadBalancer.Ingress = tt.ingress
			}))
			if !sameLists(spec.LoadBalancerVIPs, tt.want) {
				t.Errorf("got %v, want %v", spec.LoadBalancerVIPs, tt.want)
			}
			checkWarnings(t, warnings, "Service ns1/svc1", tt.warned...)
		})
	}
}

func TestService_SourceRanges(t *testing.T) {
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
			spec, warnings := lenient.Service(newService(loadBalancer, func(o *corev1.Service) {
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

// TestService_InternalTrafficPolicy: the internal traffic policy is Local only if it is set to Local.
func TestService_InternalTrafficPolicy(t *testing.T) {
	cluster, local := corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal
	tests := []struct {
		policy *corev1.ServiceInternalTrafficPolicy
		want   bool
	}{{nil, false}, {&cluster, false}, {&local, true}}
	for _, tt := range tests {
		spec, _ := lenient.Service(newService(func(o *corev1.Service) { o.Spec.InternalTrafficPolicy = tt.policy }))
		if spec.InternalLocal != tt.want {
			t.Errorf("%v: got %v", tt.policy, spec.InternalLocal)
		}
	}
}

// TestService_ExternalTrafficPolicy: the external traffic policy Local counts only for a Service that can be reached
// from outside.
func TestService_ExternalTrafficPolicy(t *testing.T) {
	const local = corev1.ServiceExternalTrafficPolicyLocal
	tests := []struct {
		name        string
		kind        corev1.ServiceType
		externalIPs []string
		policy      corev1.ServiceExternalTrafficPolicy
		want        bool
	}{
		{"LoadBalancer", corev1.ServiceTypeLoadBalancer, nil, local, true},
		{"NodePort", corev1.ServiceTypeNodePort, nil, local, true},
		{"ClusterIP with external IPs", corev1.ServiceTypeClusterIP, []string{"192.0.2.99"}, local, true},
		{"an entry counts even if it cannot be used", corev1.ServiceTypeClusterIP, []string{"bad"}, local, true},
		{"ClusterIP without", corev1.ServiceTypeClusterIP, nil, local, false},
		{"no type means ClusterIP", "", nil, local, false},
		{"no type, external IPs", "", []string{"192.0.2.99"}, local, true},
		{"unknown type", "Odd", []string{"192.0.2.99"}, local, false},
		{"Cluster", corev1.ServiceTypeLoadBalancer, nil, corev1.ServiceExternalTrafficPolicyCluster, false},
		{"not set", corev1.ServiceTypeLoadBalancer, nil, "", false},
	}
	for _, tt := range tests {
		spec, _ := lenient.Service(newService(func(o *corev1.Service) {
			o.Spec.Type, o.Spec.ExternalIPs, o.Spec.ExternalTrafficPolicy = tt.kind, tt.externalIPs, tt.policy
		}))
		if spec.ExternalLocal != tt.want {
			t.Errorf("%s: got %v", tt.name, spec.ExternalLocal)
		}
	}
}

// TestService_HealthCheckNodePort: a health check node port is opened only for a LoadBalancer Service with the Local
// policy.
func TestService_HealthCheckNodePort(t *testing.T) {
	const path = "spec.healthCheckNodePort"
	const local, cluster = corev1.ServiceExternalTrafficPolicyLocal, corev1.ServiceExternalTrafficPolicyCluster
	tests := []struct {
		name   string
		kind   corev1.ServiceType
		policy corev1.ServiceExternalTrafficPolicy
		port   int32
		want   uint16
		warned []string
	}{
		{"opened", corev1.ServiceTypeLoadBalancer, local, 32000, 32000, nil},
		{"0 opens nothing", corev1.ServiceTypeLoadBalancer, local, 0, 0, []string{path}},
		{"out of range", corev1.ServiceTypeLoadBalancer, local, 70000, 0, []string{path}},
		{"policy Cluster", corev1.ServiceTypeLoadBalancer, cluster, 32000, 0, nil},
		{"NodePort", corev1.ServiceTypeNodePort, local, 32000, 0, nil},
		{"ClusterIP", corev1.ServiceTypeClusterIP, local, 32000, 0, nil},
	}
	for _, tt := range tests {
		spec, warnings := lenient.Service(newService(loadBalancer, func(o *corev1.Service) {
			o.Spec.Type, o.Spec.ExternalTrafficPolicy, o.Spec.HealthCheckNodePort = tt.kind, tt.policy, tt.port
		}))
		if spec.HealthCheckNodePort != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, spec.HealthCheckNodePort, tt.want)
		}
		checkWarnings(t, warnings, "Service ns1/svc1", tt.warned...)
	}
}

func TestService_Affinity(t *testing.T) {
	const path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
	timeout := func(seconds int32) *corev1.SessionAffinityConfig {
		return &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
	tests := []struct {
		name     string
		affinity corev1.ServiceAffinity
		config   *corev1.SessionAffinityConfig
		want     int
		warned   []string
	}{
		{"none", corev1.ServiceAffinityNone, nil, 0, nil},
		{"none, with a left-over timeout", corev1.ServiceAffinityNone, timeout(10), 0, nil},
		{"not set", "", timeout(10), 0, nil},
		{"unknown", "Cookie", timeout(10), 0, nil},
		{"client IP", corev1.ServiceAffinityClientIP, timeout(10), 10, nil},
		{"the longest", corev1.ServiceAffinityClientIP, timeout(86400), 86400, nil},
		{"no config", corev1.ServiceAffinityClientIP, nil, 10800, []string{path}},
		{"no client IP config", corev1.ServiceAffinityClientIP, &corev1.SessionAffinityConfig{}, 10800, []string{path}},
		{"no timeout", corev1.ServiceAffinityClientIP, &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{}}, 10800, []string{path}},
		{"too short", corev1.ServiceAffinityClientIP, timeout(0), 10800, []string{path}},
		{"negative", corev1.ServiceAffinityClientIP, timeout(-5), 10800, []string{path}},
		{"too long", corev1.ServiceAffinityClientIP, timeout(86401), 86400, []string{path}},
	}
	for _, tt := range tests {
		spec, warnings := lenient.Service(newService(func(o *corev1.Service) {
			o.Spec.SessionAffinity, o.Spec.SessionAffinityConfig = tt.affinity, tt.config
		}))
		if spec.AffinitySeconds != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, spec.AffinitySeconds, tt.want)
		}
		checkWarnings(t, warnings, "Service ns1/svc1", tt.warned...)
	}
}

func TestService_Scheduling(t *testing.T) {
	const (
		scheduler = "metadata.annotations[sluice.dev/ipvs-scheduler]"
		flags     = "metadata.annotations[sluice.dev/ipvs-flags]"
		absent    = "-"
	)
	tests := []struct {
		name             string
		scheduler, flags string
		want             service.Scheduling
		// warned is a field, and words are what its warning has to say.
		warned string
		words  []string
	}{
		{"not asked for", absent, absent, service.Scheduling{}, "", nil},
		{"a scheduler", "lc", absent, service.Scheduling{Scheduler: "lc"}, "", nil},
		{"blanks around", " sh ", " sh-port , sh-fallback ", service.Scheduling{Scheduler: "sh", Ports: true, Fallback: true}, "", nil},
		{"sh counts no ports unless told", "sh", absent, service.Scheduling{Scheduler: "sh"}, "", nil},
		{"one flag", "sh", "sh-fallback", service.Scheduling{Scheduler: "sh", Fallback: true}, "", nil},
		{"mh counts ports", "mh", absent, service.Scheduling{Scheduler: "mh", Ports: true}, "", nil},
		{"mh with flags has just these", "mh", "mh-fallback", service.Scheduling{Scheduler: "mh", Fallback: true}, "", nil},
		{"mh without flags", "mh", "", service.Scheduling{Scheduler: "mh"}, "", nil},
		{"no flags for one that has none", "rr", "", service.Scheduling{Scheduler: "rr"}, "", nil},
		{"nonsense", "fastest", absent, service.Scheduling{}, scheduler, []string{`"fastest"`, "rr, sed, sh", "node's scheduler"}},
		{"empty", "", absent, service.Scheduling{}, scheduler, []string{`""`}},
		{"nonsense with flags", "fastest", "sh-port", service.Scheduling{}, scheduler, []string{`"fastest"`}},
		{"flags alone", absent, "sh-port", service.Scheduling{}, flags, []string{`"sh-port"`, "sluice.dev/ipvs-scheduler"}},
		{"flags of another one", "sh", "mh-port", service.Scheduling{}, flags, []string{`"mh-port"`, "sh-port, sh-fallback"}},
		{"flags where there are none", "rr", "sh-port", service.Scheduling{}, flags, []string{`"sh-port"`, "rr", "mh and sh"}},
		{"half nonsense", "sh", "sh-port,ponies", service.Scheduling{}, flags, []string{`"ponies"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec, warnings := lenient.Service(newService(func(o *corev1.Service) {
				o.Annotations = map[string]string{"other": "x"}
				for name, value := range map[string]string{annotationScheduler: tt.scheduler, annotationFlags: tt.flags} {
					if value != absent {
						o.Annotations[name] = value
					}
				}
			}))
			if spec.Scheduling != tt.want {
				t.Errorf("got %+v, want %+v", spec.Scheduling, tt.want)
			}
			if tt.warned == "" {
				checkWarnings(t, warnings, "Service ns1/svc1")
				return
			}
			checkWarnings(t, warnings, "Service ns1/svc1", tt.warned)
			for _, words := range tt.words {
				if !strings.Contains(warnings[0].Message(), words) {
					t.Errorf("%q does not say %q", warnings[0].Message(), words)
				}
			}
		})
	}
}

func TestService_FlowLog(t *testing.T) {
	for value, want := range map[string]bool{"true": true, " true ": true, "false": false, "": false, "yes": false} {
		spec, warnings := lenient.Service(newService(func(o *corev1.Service) {
			o.Annotations = map[string]string{annotationFlowLog: value}
		}))
		if spec.FlowLog != want {
			t.Errorf("%q: got %t, want %t", value, spec.FlowLog, want)
		}
		if value == "" || value == "yes" {
			checkWarnings(t, warnings, "Service ns1/svc1", "metadata.annotations[sluice.dev/flow-log]")
		} else {
			checkWarnings(t, warnings, "Service ns1/svc1")
		}
	}
}

func TestService_ProxyProtocol(t *testing.T) {
	for value, want := range map[string]bool{"v2": true, " v2 ": true, "": false, "v1": false, "true": false} {
		spec, warnings := lenient.Service(newService(func(o *corev1.Service) {
			o.Annotations = map[string]string{annotationProxyProtocol: value}
		}))
		if spec.ProxyProtocol != want {
			t.Errorf("%q: got %t, want %t", value, spec.ProxyProtocol, want)
		}
		if want {
			checkWarnings(t, warnings, "Service ns1/svc1")
			continue
		}
		checkWarnings(t, warnings, "Service ns1/svc1", "metadata.annotations[sluice.dev/proxy-protocol]")
		if !strings.Contains(warnings[0].Message(), "use v2") {
			t.Errorf("%q does not say what to use", warnings[0].Message())
		}
	}
	if spec, _ := lenient.Service(newService(func(*corev1.Service) {})); spec.ProxyProtocol {
		t.Error("nobody has asked for it")
	}
}

func TestService_Drain(t *testing.T) {
	node := Policy{Drain: time.Hour}
	for value, want := range map[string]time.Duration{" 30s ": 30 * time.Second, "0s": 0, "24h": 24 * time.Hour} {
		spec, warnings := lenient.Service(newService(func(o *corev1.Service) {
			o.Annotations = map[string]string{annotationDrain: value}
		}))
		checkWarnings(t, warnings, "Service ns1/svc1")
		if spec.Drain != (service.Drain{Limited: true, After: want}) {
			t.Errorf("%q: got %+v, want %v", value, spec.Drain, want)
		}
	}
	for _, value := range []string{"", "30", "-1s", "24h1s", "soon"} {
		spec, warnings := node.Service(newService(func(o *corev1.Service) {
			o.Annotations = map[string]string{annotationDrain: value}
		}))
		checkWarnings(t, warnings, "Service ns1/svc1", "metadata.annotations[sluice.dev/drain]")
		if spec.Drain != (service.Drain{Limited: true, After: time.Hour}) {
			t.Errorf("%q: got %+v, want that of the node", value, spec.Drain)
		}
	}
	plain := newService()
	if spec, _ := node.Service(plain); spec.Drain.Or(0) != time.Hour {
		t.Errorf("without the annotation: %+v, want that of the node", spec.Drain)
	}
	if spec, _ := lenient.Service(plain); spec.Drain != (service.Drain{}) {
		t.Errorf("without a deadline: %+v", spec.Drain)
	}
}
