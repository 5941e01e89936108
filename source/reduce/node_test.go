// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/service"
)

func TestNode(t *testing.T) {
	object := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   "n1",
			Labels: map[string]string{corev1.LabelTopologyZone: "za", corev1.LabelFailureDomainBetaZone: "zb"},
		},
		Spec: corev1.NodeSpec{
			PodCIDR:  "10.9.0.0/24",
			PodCIDRs: []string{"bad", "fd00:10:244::1/64", "10.244.0.1/24", "10.244.1.0/24"},
		},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeExternalIP, Address: "192.0.2.7"},
			{Type: corev1.NodeHostName, Address: "n1"},
			{Type: corev1.NodeInternalIP, Address: "192.168.000.002"},
			{Type: corev1.NodeInternalIP, Address: "bad"},
			{Type: corev1.NodeInternalDNS, Address: "n1.internal"},
			{Type: corev1.NodeInternalIP, Address: "fd00:192:168::2"},
		}},
	}
	node, warnings := Node(object)
	if node.Name != "n1" || node.Zone != "za" || node.Deleting || node.AutoscalerTaint {
		t.Errorf("got %+v", node)
	}
	if want := addrs("192.168.0.2", "fd00:192:168::2", "192.0.2.7"); !slices.Equal(node.Addresses, want) {
		t.Errorf("addresses %v, want %v: internal ones first", node.Addresses, want)
	}
	want := service.PerFamily[netip.Prefix]{
		netip.MustParsePrefix("10.244.0.0/24"), netip.MustParsePrefix("fd00:10:244::/64"),
	}
	if node.PodCIDRs != want {
		t.Errorf("pod CIDRs %v, want the first of each family, %v", node.PodCIDRs, want)
	}
	checkWarnings(t, warnings, "Node n1", "status.addresses[3].address", "spec.podCIDRs[0]")
}

func TestNode_Empty(t *testing.T) {
	node, warnings := Node(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	if node == nil || node.Name != "n1" || node.Zone != "" || node.Addresses != nil ||
		node.PodCIDRs != (service.PerFamily[netip.Prefix]{}) {
		t.Errorf("got %+v", node)
	}
	checkWarnings(t, warnings, "Node n1")
}

// TestNode_BeingRemoved: a Node with a deletion timestamp or the autoscaler's taint is marked as being removed.
func TestNode_BeingRemoved(t *testing.T) {
	now := metav1.NewTime(time.Unix(1000, 0))
	tests := []struct {
		name            string
		deletion        *metav1.Time
		taint           string
		deleting, taken bool
	}{
		{"deletion requested", &now, "", true, false},
		{"autoscaler", nil, "ToBeDeletedByClusterAutoscaler", false, true},
		{"another taint", nil, corev1.TaintNodeUnschedulable, false, false},
	}
	for _, tt := range tests {
		node, _ := Node(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: tt.deletion},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: tt.taint, Value: "any", Effect: corev1.TaintEffectPreferNoSchedule}}},
		})
		if node.Deleting != tt.deleting || node.AutoscalerTaint != tt.taken {
			t.Errorf("%s: got %+v", tt.name, node)
		}
	}
}

func TestServiceCIDR(t *testing.T) {
	now := metav1.NewTime(time.Unix(1000, 0))
	ranges, warnings := ServiceCIDR(&networkingv1.ServiceCIDR{
		// One that is being deleted still counts.
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", DeletionTimestamp: &now},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"fd00:10:96::1/112", "bad", "10.96.0.0/16", "10.96.0.1/16"}},
	})
	if want := prefixes("fd00:10:96::/112", "10.96.0.0/16"); !slices.Equal(ranges, want) {
		t.Errorf("got %v, want %v", ranges, want)
	}
	checkWarnings(t, warnings, "ServiceCIDR kubernetes", "spec.cidrs[1]")
}

// TestServiceCIDR_Empty: a ServiceCIDR without ranges has no ranges and no warnings.
func TestServiceCIDR_Empty(t *testing.T) {
	ranges, warnings := ServiceCIDR(&networkingv1.ServiceCIDR{})
	if len(ranges) != 0 || len(warnings) != 0 {
		t.Errorf("got %v, %v", ranges, warnings)
	}
}
