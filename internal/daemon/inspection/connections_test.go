package inspection

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/service"
)

// TestTranslatedConnectionsHaveTheirService: by address, or by node port. A shadowed Service has no connection.
func TestTranslatedConnectionsHaveTheirService(t *testing.T) {
	port := func(spec *service.Spec) *service.Spec {
		spec.Ports = []service.Port{{Name: "https", Port: 443, NodePort: 30443}, {Name: "udp", Protocol: service.UDP, Port: 443}}
		return spec
	}
	_, i := newFake(t, port(wants("owner", "192.0.2.1")), wants("shadowed", "192.0.2.1"))
	all := i.owners()
	endpoint := netip.MustParseAddrPort("10.244.1.21:8443")
	for _, tt := range []struct {
		to       string
		protocol service.Protocol
		want     string
	}{
		{"10.0.0.1:443", service.TCP, "ns/owner:https"}, {"10.0.0.1:443", service.UDP, "ns/owner:udp"}, {"10.0.0.1:443", service.SCTP, ""},
		{"192.0.2.1:443", service.TCP, "ns/owner:https"}, {"192.0.2.1:80", service.TCP, "ns/owner:"}, {"10.0.0.2:80", service.TCP, "ns/shadowed:"},
		{"198.51.100.9:30443", service.TCP, "ns/owner:https"}, {"198.51.100.9:443", service.TCP, ""}, {"198.51.100.9:30443", service.UDP, ""},
	} {
		c, ok := all.connection(&conntrack.Connection{
			Protocol: tt.protocol.Number(), To: netip.MustParseAddrPort(tt.to), Answerer: endpoint, Offloaded: true,
		})
		if got := c.Namespace + "/" + c.Name + ":" + c.PortName; ok != (tt.want != "") || ok && got != tt.want {
			t.Errorf("%s %s: %s, %t; want %s", tt.protocol, tt.to, got, ok, tt.want)
		}
		if ok && (c.Endpoint != endpoint || c.Protocol != tt.protocol.String() || !c.Tracked.Offloaded) {
			t.Errorf("%+v", c)
		}
	}
	i.Backend.Mode = config.ModeIPVS
	if _, _, err := i.Connections(0, 1, nil); err == nil || !strings.HasPrefix(err.Error(), "mode ipvs: the kernel forwards connections") {
		t.Error(err)
	}
}
