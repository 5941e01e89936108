package harness

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// ChangeNode changes the Node object of the node under test.
func (c *Cluster) ChangeNode(change func(*corev1.Node)) {
	c.t.Helper()
	nodes := c.Client.CoreV1().Nodes()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := nodes.Get(c.t.Context(), NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(node)
		_, err = nodes.Update(c.t.Context(), node, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		c.t.Fatalf("change node %s: %v", NodeName, err)
	}
}
