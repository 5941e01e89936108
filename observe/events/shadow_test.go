package events

import (
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// TestAShadowIsAboutBothServices: the event is on the Service that loses, and names
// the one that serves; when it says the same in the other family, it is the same
// event, and the end of it is none.
func TestAShadowIsAboutBothServices(t *testing.T) {
	r, created := running(t)
	older := service.Key{Namespace: "ns", Name: "older"}
	shadowed := aggregator.Shadowed{
		Domain: "nftables/IPv4", Key: web, By: older,
		Frontends: dataplane.Frontends{{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80}, {Port: 30080, Protocol: service.UDP}},
	}
	r.Aggregator(shadowed)
	e := await(t, created)
	const want = "nftables/IPv4: Service ns/older, which is older, serves 192.0.2.1:80/tcp, node port 30080/udp; change or delete either"
	if e.Reason != "ServiceShadowed" || e.Type != "Warning" || e.Action != "Program" || e.Note != want {
		t.Errorf("%s %s %s: %s", e.Type, e.Reason, e.Action, e.Note)
	}
	if e.Namespace != "ns" || e.Regarding.Kind != "Service" || e.Regarding.Name != "web" {
		t.Errorf("in %s, about %v", e.Namespace, e.Regarding)
	}
	if e.Related == nil || e.Related.Kind != "Service" || e.Related.Namespace != "ns" || e.Related.Name != "older" {
		t.Errorf("related to %v", e.Related)
	}
	r.Aggregator(aggregator.Unshadowed{Domain: shadowed.Domain, Key: web, By: older, Frontends: shadowed.Frontends})
	another := shadowed
	another.By.Name = "another"
	r.Aggregator(another)
	if e := await(t, created); e.Related.Name != "another" {
		t.Errorf("the end of a shadow made an event, or another server's made none: %+v", e)
	}
}
