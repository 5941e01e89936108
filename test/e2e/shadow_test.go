package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// Two Services claim the same external IPs and ports, which the API allows. The older one has them, also
// without endpoints, an event tells the younger one's owner, and the younger one is served once the older
// one is gone.
func TestShadowedService(t *testing.T) { inEachMode(t, testShadowedService) }

func testShadowedService(t *testing.T, mode harness.Mode) {
	addresses := []string{"203.0.113.8", "2001:db8:113::8"}
	var targets []harness.Target
	for _, text := range addresses {
		addr := netip.AddrPortFrom(netip.MustParseAddr(text), harness.ServicePort)
		targets = append(targets, harness.Target{Network: "tcp", Addr: addr}, harness.Target{Network: "udp", Addr: addr})
	}
	external := func(spec *corev1.ServiceSpec) { spec.ExternalIPs = addresses }

	c := harness.NewCluster(t)
	c.StartProxy(mode)
	clients := []*harness.Host{c.X}
	older := c.CreateService("web", corev1.ServiceTypeClusterIP, external)
	c.SetEndpoints("web", c.A)
	reachAll(t, startMax, "alone", clients, targets, c.A)
	// Ages in the API have whole seconds. Between equals the name decides, and "another" would win.
	time.Sleep(time.Until(older.CreationTimestamp.Add(2 * time.Second)))
	younger := c.CreateService("another", corev1.ServiceTypeClusterIP, external)
	// One endpoint is on this node, which reports the event for that reason.
	c.SetEndpoints("another", c.A, c.B)
	reachAll(t, changeMax, "the younger one works inside the cluster", clients, clusterIPs(t, younger), c.A, c.B)
	reachAll(t, changeMax, "the older one is served", clients, targets, c.A)

	lookAtShadowEvent(t, awaitEvent(t, c, "ServiceShadowed"), mode)
	awaitShadows(t, c, len(targets))
	c.SetEndpoints("another")
	unreachableAll(t, changeMax, "the younger one has no endpoint", clients, clusterIPs(t, younger))
	reachAll(t, changeMax, "which does not reject what the older one serves", clients, targets, c.A)
	c.SetEndpoints("another", c.C)
	reachAll(t, changeMax, "the younger one has changed", clients, clusterIPs(t, younger), c.C)
	reachAll(t, changeMax, "the older one is still served", clients, targets, c.A)
	c.SetEndpoints("web")
	unreachableAll(t, changeMax, "the older one has no endpoint", clients, targets)
	reachAll(t, changeMax, "the younger one is not concerned", clients, clusterIPs(t, younger), c.C)
	// Another change must not repeat the event.
	if events := shadowEvents(t, c); len(events) != 1 || events[0].Series != nil {
		t.Errorf("%d events, want one: %v", len(events), events)
	}

	c.DeleteService("web")
	reachAll(t, changeMax, "the younger one is served", clients, targets, c.C)
	awaitShadows(t, c, 0)
}

// lookAtShadowEvent checks that the text names the addresses and both Services.
func lookAtShadowEvent(t *testing.T, event eventsv1.Event, mode harness.Mode) {
	t.Helper()
	if event.Type != corev1.EventTypeWarning || event.Regarding.Kind != "Service" || event.Regarding.Name != "another" ||
		event.Related == nil || event.Related.Name != "web" {
		t.Errorf("%s event about %v and %v", event.Type, event.Regarding, event.Related)
	}
	const addresses = "203.0.113.8:80/tcp, 203.0.113.8:80/udp, [2001:db8:113::8]:80/tcp, [2001:db8:113::8]:80/udp"
	if !strings.Contains(event.Note, addresses) || !strings.Contains(event.Note, "default/web") {
		t.Errorf("%s: the note does not name the addresses and who serves them: %s", mode, event.Note)
	}
}

// awaitShadows waits until the metrics count a number of shadowed addresses and ports.
func awaitShadows(t *testing.T, c *harness.Cluster, want int) {
	t.Helper()
	harness.Eventually(t, changeMax, fmt.Sprintf("%d shadowed", want), func(ctx context.Context) error {
		page, err := metricsPage(ctx, c, "/metrics")
		if err != nil {
			return err
		}
		if n, found := series(page.Body)["sluice_shadowed_frontends"]; !found || n != float64(want) {
			return fmt.Errorf("%v are shadowed, exported: %v", n, found)
		}
		return nil
	})
}

// shadowEvents returns the events about shadowed Services.
func shadowEvents(t *testing.T, c *harness.Cluster) []eventsv1.Event {
	t.Helper()
	all, err := c.Client.EventsV1().Events(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=ServiceShadowed"})
	if err != nil {
		t.Fatal(err)
	}
	return all.Items
}
