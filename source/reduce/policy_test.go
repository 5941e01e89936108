// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
)

// TestPolicy_DeniedAddresses: an address that an API server should have rejected is dropped with a warning, in every
// field. The rest of the object stays.
func TestPolicy_DeniedAddresses(t *testing.T) {
	policy := Policy{Addresses: service.AddressPolicy{Denied: []netip.Prefix{
		netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("fd00:ec2::254/128")}}}
	for _, denied := range []string{"127.0.0.1", "127.1.2.3", "169.254.169.254", "0.0.0.0", "224.0.0.1", "::1", "::", "fe80::1", "ff02::1",
		"::ffff:127.0.0.1", "168.63.129.16", "fd00:ec2::254"} {
		family := service.FamilyOf(netip.MustParseAddr(denied).Unmap())
		good := service.PerFamily[string]{"203.0.113.7", "2001:db8::7"}[family]

		slice, warnings := policy.EndpointSlice(newSlice(func(o *discoveryv1.EndpointSlice) {
			o.AddressType = discoveryv1.AddressType(family.String())
			o.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{denied}}, {Addresses: []string{good}}}
		}))
		checkWarnings(t, warnings, "EndpointSlice "+slice.Service.Namespace+"/"+slice.Name, "endpoints[0].addresses[0]")
		if len(slice.Endpoints) != 1 || slice.Endpoints[0].Addr.String() != good {
			t.Errorf("%s: endpoints %v, want %s alone", denied, slice.Endpoints, good)
		}

		spec, warnings := policy.Service(newService(func(o *corev1.Service) {
			o.Spec.ExternalIPs = []string{denied, good}
			o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: good}, {IP: denied}}
		}))
		checkWarnings(t, warnings, "Service ns1/svc1", "spec.externalIPs[0]", "status.loadBalancer.ingress[1].ip")
		for what, got := range map[string][]netip.Addr{"external IPs": spec.ExternalIPs[family], "load balancer IPs": spec.LoadBalancerVIPs[family]} {
			if len(got) != 1 || got[0].String() != good {
				t.Errorf("%s: %s %v, want %s alone", denied, what, got, good)
			}
		}
	}
}

// TestPolicy_AllowedSchedulers: a Service can choose only an allowed scheduler, because each scheduler is a kernel
// module that is loaded on demand.
func TestPolicy_AllowedSchedulers(t *testing.T) {
	for _, c := range []struct {
		allowed     []string
		asked, want string
		says        string
	}{
		{[]string{"rr", "sh"}, "sh", "sh", ""},
		{[]string{"rr", "sh"}, "mh", "", "mh is not in ipvs.serviceSchedulers; must be one of rr, sh"},
		{[]string{"rr", "sh"}, "fastest", "", `unknown scheduler "fastest"; must be one of rr, sh`},
		{nil, "rr", "", "rr is not in ipvs.serviceSchedulers; no scheduler may be chosen"},
	} {
		spec, warnings := Policy{Schedulers: c.allowed}.Service(newService(func(o *corev1.Service) {
			o.Annotations = map[string]string{annotationScheduler: c.asked}
		}))
		if spec.Scheduling.Scheduler != c.want {
			t.Errorf("%q with %q: got %q, want %q", c.asked, c.allowed, spec.Scheduling.Scheduler, c.want)
		}
		if said := len(warnings) == 1 && strings.HasPrefix(warnings[0].Message(), c.says+"; "); said != (c.says != "") {
			t.Errorf("%q with %q: warnings %v, want %q", c.asked, c.allowed, warnings, c.says)
		}
	}
}

// TestPolicy_DeniedPorts: a Service does not get a denied TCP port of the nodes at external IPs and load balancer IPs.
// Its other ports stay.
func TestPolicy_DeniedPorts(t *testing.T) {
	p := Policy{DeniedPorts: []uint16{10249, 10250}}
	with := func(changes ...func(*corev1.Service)) string {
		spec, warnings := p.Service(newService(append([]func(*corev1.Service){func(o *corev1.Service) {
			o.Spec.Ports = []corev1.ServicePort{
				{Name: "a", Port: 80}, {Name: "b", Port: 10249}, {Name: "c", Port: 10250, Protocol: corev1.ProtocolUDP}, {Name: "d", Port: 10250},
			}
		}}, changes...)...))
		var inside []string
		for i := range spec.Ports {
			if spec.Ports[i].NotOutside {
				inside = append(inside, spec.Ports[i].Name)
			}
		}
		if len(warnings) != len(inside) {
			t.Errorf("%d warnings: %v", len(warnings), warnings)
		}
		return strings.Join(inside, " ")
	}
	if got := with(); got != "" {
		t.Errorf("with a ClusterIP alone: %s", got)
	}
	if got := with(func(o *corev1.Service) { o.Spec.ExternalIPs = []string{"192.0.2.1"} }); got != "b d" {
		t.Errorf("with an external IP: %s", got)
	}
	if got := with(loadBalancer, func(o *corev1.Service) {
		o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	}); got != "b d" {
		t.Errorf("with a load balancer IP: %s", got)
	}
}
