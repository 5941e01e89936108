// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// TestUnserved: an address that no node serves has a reason, with a remedy where there is one. A served address has
// none.
func TestUnserved(t *testing.T) {
	for _, c := range []struct {
		name      string
		change    func(*corev1.Service)
		why, vip  string
		unchanged bool
	}{
		{"headless", func(o *corev1.Service) { o.Spec.ClusterIP = corev1.ClusterIPNone }, "second Service with the same selector", "headless", false},
		{"ExternalName", func(o *corev1.Service) {
			o.Spec.Type, o.Spec.ExternalName = corev1.ServiceTypeExternalName, "db.example"
		}, `DNS answers with "db.example"`, "ExternalName", false},
		{"another proxy", func(o *corev1.Service) { o.Labels = map[string]string{LabelServiceProxyName: "mesh"} }, `the proxy "mesh" serves it`, "mesh", false},
		{"no ClusterIP", func(o *corev1.Service) { o.Spec.ClusterIP = "" }, "no ClusterIP yet", "no ClusterIP yet", false},
		{"ipMode Proxy", func(o *corev1.Service) {
			o.Status.LoadBalancer.Ingress[0].IPMode = ptr.To(corev1.LoadBalancerIPModeProxy)
		}, "", "ipMode Proxy", true},
		{"served", func(*corev1.Service) {}, "", "", true},
	} {
		object := newService(func(o *corev1.Service) {
			o.Spec.ExternalIPs = []string{"203.0.113.111", "nonsense"}
			o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.5"}, {Hostname: "lb"}}
		})
		c.change(object)
		spec, _ := lenient.Service(object)
		why, all := NotServed(object), Unserved(object)
		external, vip := all[netip.MustParseAddr("203.0.113.111")], all[netip.MustParseAddr("203.0.113.5")]
		if (why == "") != c.unchanged || !strings.Contains(why, c.why) || !strings.Contains(external, c.why) || !strings.Contains(vip, c.vip) ||
			(external == "") != c.unchanged || (vip == "") != (c.vip == "") {
			t.Errorf("%s: %q; external IP: %q; load balancer IP: %q", c.name, why, external, vip)
		}
		if got := all[netip.MustParseAddr("10.96.0.1")]; c.name == "another proxy" && !strings.HasPrefix(got, "10.96.0.1 is the ClusterIP of ns1/svc1, which has the label") {
			t.Errorf("%s: ClusterIP: %q", c.name, got)
		}
		if (spec == nil) == c.unchanged {
			t.Errorf("%s: the reason is %q, and the Service is %v", c.name, why, spec)
		}
	}
}
