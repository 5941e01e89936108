package reduce

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/service"
)

func FuzzNode(f *testing.F) {
	addSeeds(f, &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.0.0/24"}}})
	f.Fuzz(func(t *testing.T, data []byte) {
		object := &corev1.Node{}
		if !read(data, object, &object.Labels, &object.Spec.PodCIDRs, &object.Spec.Taints, &object.Status.Addresses) {
			return
		}
		node, warnings := Node(object)
		checkComplete(t, warnings)
		for _, addr := range node.Addresses {
			checkAddr(t, service.FamilyOf(addr), addr)
		}
		for _, family := range service.Families {
			if prefix := node.PodCIDRs[family]; prefix.IsValid() {
				checkAddr(t, family, prefix.Addr())
			}
		}
	})
}
