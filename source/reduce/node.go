// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-proxy/sluice/service"
)

// autoscalerTaint is put on a node by the cluster autoscaler before the node is
// removed. Balancers must turn away from it.
const autoscalerTaint = "ToBeDeletedByClusterAutoscaler"

// Node reduces a Node. The result is never nil.
func Node(object *corev1.Node) (*service.NodeObject, []service.Warning) {
	n := &notes{kind: "Node", name: object.Name}
	addresses, internal := nodeAddresses(n, object.Status.Addresses)
	return &service.NodeObject{
		Name:      strings.Clone(object.Name),
		Zone:      strings.Clone(nameOr(n, field("metadata.labels["+corev1.LabelTopologyZone+"]"), object.Labels[corev1.LabelTopologyZone], nameMax)),
		Addresses: addresses,
		Internal:  internal,
		PodCIDRs:  podCIDRs(n, object.Spec.PodCIDRs),
		Deleting:  object.DeletionTimestamp != nil,
		AutoscalerTaint: slices.ContainsFunc(object.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == autoscalerTaint
		}),
	}, n.warnings
}

// nodeAddresses returns the internal addresses, then the external ones, and the families of the internal ones.
func nodeAddresses(n *notes, addresses []corev1.NodeAddress) (found []netip.Addr, internal service.PerFamily[bool]) {
	for _, kind := range [...]corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for i := range addresses {
			if addresses[i].Type != kind {
				continue
			}
			text := addresses[i].Address
			if addr, ok := parseAddr(text); ok {
				found = append(found, addr)
				internal[service.FamilyOf(addr)] = internal[service.FamilyOf(addr)] || kind == corev1.NodeInternalIP
			} else {
				n.add(at("status.addresses", i).dot("address"),
					"the entry is skipped", "%q is not an IP address", text)
			}
		}
	}
	return found, internal
}

// podCIDRs returns the first range of each family.
func podCIDRs(n *notes, texts []string) service.PerFamily[netip.Prefix] {
	var found service.PerFamily[netip.Prefix]
	for i, text := range texts {
		prefix, ok := parsePrefix(text)
		if !ok {
			n.add(at("spec.podCIDRs", i), "the entry is skipped", "%q is not a CIDR", text)
			continue
		}
		if family := service.FamilyOf(prefix.Addr()); !found[family].IsValid() {
			found[family] = prefix
		}
	}
	return found
}

// ServiceCIDR reduces a ServiceCIDR to its ranges, masked, without duplicates, in
// API order. Conditions and deletion are not looked at: a range is in use until
// its object is gone.
func ServiceCIDR(object *networkingv1.ServiceCIDR) ([]netip.Prefix, []service.Warning) {
	n := &notes{kind: "ServiceCIDR", name: object.Name}
	var found []netip.Prefix
	for i, text := range object.Spec.CIDRs {
		prefix, ok := parsePrefix(text)
		if !ok {
			n.add(at("spec.cidrs", i), "the entry is skipped", "%q is not a CIDR", text)
			continue
		}
		if !slices.Contains(found, prefix) {
			found = append(found, prefix)
		}
	}
	return found, n.warnings
}
