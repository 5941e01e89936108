package e2e

import (
	"context"
	"fmt"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// awaitEvent waits until the API has an event of the proxy with this reason.
func awaitEvent(t *testing.T, c *harness.Cluster, reason string) eventsv1.Event {
	t.Helper()
	var found eventsv1.Event
	harness.Eventually(t, changeMax, "event "+reason, func(ctx context.Context) error {
		all, err := c.Client.EventsV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, event := range all.Items {
			if event.Reason == reason && event.ReportingController == "kube-proxy" {
				found = event
				return nil
			}
		}
		return fmt.Errorf("not among %d events", len(all.Items))
	})
	return found
}
