// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// LabelServiceProxyName is the label of Services that another proxy serves, with any value.
const LabelServiceProxyName = "service.kubernetes.io/service-proxy-name"

// NotServed returns why no node serves a Service, and what to do; "" if nodes serve it.
func NotServed(object *corev1.Service) string {
	spec := &object.Spec
	proxy, labeled := object.Labels[LabelServiceProxyName]
	switch {
	case labeled:
		return fmt.Sprintf("has the label %s, so the proxy %q serves it and Sluice does not; remove the label if there is no such proxy", LabelServiceProxyName, proxy)
	case spec.Type == corev1.ServiceTypeExternalName:
		return fmt.Sprintf("is of type ExternalName, so DNS answers with %q and no proxy serves it; use another type to serve an address", spec.ExternalName)
	case spec.ClusterIP == corev1.ClusterIPNone:
		return "is headless (clusterIP: None), so DNS answers with its endpoints and no proxy serves it; to serve an address, " +
			"create a second Service with the same selector and a ClusterIP"
	case spec.ClusterIP == "":
		return "has no ClusterIP yet; the API server allocates one"
	default:
		return ""
	}
}

// Unserved returns the addresses that a Service lists and no node serves, each with a sentence that says why.
func Unserved(object *corev1.Service) map[netip.Addr]string {
	found := map[netip.Addr]string{}
	why, name := NotServed(object), object.Namespace+"/"+object.Name
	for kind, texts := range map[string][]string{"the ClusterIP": object.Spec.ClusterIPs, "an external IP": object.Spec.ExternalIPs} {
		for _, text := range texts {
			if addr, ok := parseAddr(text); ok && why != "" {
				found[addr] = fmt.Sprintf("%s is %s of %s, which %s", addr, kind, name, why)
			}
		}
	}
	for i := range object.Status.LoadBalancer.Ingress {
		entry := &object.Status.LoadBalancer.Ingress[i]
		addr, ok := parseAddr(entry.IP)
		switch {
		case !ok:
		case why != "":
			found[addr] = fmt.Sprintf("%s is a load balancer IP of %s, which %s", addr, name, why)
		case entry.IPMode != nil && *entry.IPMode == corev1.LoadBalancerIPModeProxy:
			found[addr] = fmt.Sprintf("%s is a load balancer IP of %s with ipMode Proxy: the load balancer answers, and no node serves it", addr, name)
		}
	}
	return found
}
