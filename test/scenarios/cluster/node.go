package cluster

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

func newNode() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: fixture.NodeName, Labels: map[string]string{corev1.LabelTopologyZone: fixture.Zone},
	}}
	for _, family := range service.Families {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{
			Type: corev1.NodeInternalIP, Address: fixture.MustAddress(family, "node").String(),
		})
		n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, fixture.MustPrefix(family, "pods").String())
	}
	n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	return n
}

// ChangeNode changes the Node:
//
//	zone=zb, zone=none      its zone label
//	taint=KEY, taint=none   its taints
//	cidrs=pods2, cidrs=none its pod ranges
//	addresses=192.168.0.2   its internal addresses
//	deleting=true           it has a deletion timestamp
func (c *Cluster) ChangeNode(words []string) error {
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "zone":
			delete(c.node.Labels, corev1.LabelTopologyZone)
			if value != "none" {
				c.node.Labels[corev1.LabelTopologyZone] = value
			}
		case "taint":
			c.node.Spec.Taints = nil
			if value != "none" {
				c.node.Spec.Taints = []corev1.Taint{{Key: value, Effect: corev1.TaintEffectNoSchedule}}
			}
		case "cidrs":
			c.node.Spec.PodCIDRs, c.node.Spec.PodCIDR = list(value), ""
			if len(c.node.Spec.PodCIDRs) > 0 {
				c.node.Spec.PodCIDR = c.node.Spec.PodCIDRs[0]
			}
		case "addresses":
			c.node.Status.Addresses = nil
			for _, a := range list(value) {
				c.node.Status.Addresses = append(c.node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
			}
		case "deleting":
			c.node.DeletionTimestamp = nil
			if value == "true" {
				c.node.DeletionTimestamp = ptr.To(metav1.Now())
			}
		default:
			return fmt.Errorf("node: %q: want zone, taint, cidrs, addresses or deleting", word)
		}
	}
	c.server.Set(apitest.Nodes, c.node.DeepCopy())
	return nil
}

// DeleteNode deletes the Node object; ChangeNode brings it back.
func (c *Cluster) DeleteNode() { c.server.Remove(apitest.Nodes, "", fixture.NodeName) }
