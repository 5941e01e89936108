package manifest

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// checkNode checks what a proxy reads of a Node.
func checkNode(object *corev1.Node) findings {
	var found findings
	checkMeta(&found, &object.ObjectMeta, validation.IsDNS1123Subdomain, false)
	for i, address := range object.Status.Addresses {
		if address.Type == corev1.NodeInternalIP || address.Type == corev1.NodeExternalIP {
			checkAddress(&found, index("status.addresses", i)+".address", address.Address)
		}
	}
	if ranges := object.Spec.PodCIDRs; object.Spec.PodCIDR != "" && object.Spec.PodCIDR != ranges[0] {
		found.add("spec.podCIDR", "%q must equal spec.podCIDRs[0], which is %q", object.Spec.PodCIDR, ranges[0])
	}
	for i, text := range object.Spec.PodCIDRs {
		checkPrefix(&found, index("spec.podCIDRs", i), text)
	}
	return found
}

// checkServiceCIDR checks the ranges of a ServiceCIDR.
func checkServiceCIDR(object *networkingv1.ServiceCIDR) findings {
	var found findings
	checkMeta(&found, &object.ObjectMeta, validation.IsDNS1123Subdomain, false)
	if ranges := len(object.Spec.CIDRs); ranges < 1 || ranges > 2 {
		found.add("spec.cidrs", "must have one or two ranges, has %d", ranges)
	}
	for i, text := range object.Spec.CIDRs {
		checkPrefix(&found, index("spec.cidrs", i), text)
	}
	return found
}
