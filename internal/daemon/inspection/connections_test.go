// SPDX-License-Identifier: Apache-2.0

package inspection

import (
	"errors"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// TestTracked_FindsService: a translated connection belongs to the Service that owns its address or node port, and
// never to a shadowed Service.
func TestTracked_FindsService(t *testing.T) {
	port := func(spec *service.Spec) *service.Spec {
		spec.Ports = []service.Port{{Name: "https", Port: 443, NodePort: 30443}, {Name: "udp", Protocol: service.UDP, Port: 443}}
		return spec
	}
	_, i := newFake(t, port(wants("owner", "192.0.2.1")), wants("shadowed", "192.0.2.1"))
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
		c, ok := i.tracked(service.IPv4, &conntrack.Connection{
			Protocol: tt.protocol.Number(), To: netip.MustParseAddrPort(tt.to), Answerer: endpoint, Offloaded: true,
			Accounted: true, Carried: traffic.Counts{BytesIn: 1, BytesOut: 2},
		})
		if got := c.Namespace + "/" + c.Name + ":" + c.PortName; ok != (tt.want != "") || ok && got != tt.want {
			t.Errorf("%s %s: %s, %t; want %s", tt.protocol, tt.to, got, ok, tt.want)
		}
		if ok && (c.Endpoint != endpoint || c.Protocol != tt.protocol.String() || !c.Tracked.Offloaded || !c.Tracked.Accounted || c.ToEndpoint != 1 || c.ToClient != 2) {
			t.Errorf("%+v", c)
		}
	}
}

// TestKernelConnections_AllModes: every mode that translates lists a real connection as its client made it, although
// the endpoint sees another client.
func TestKernelConnections_AllModes(t *testing.T) {
	node := netnstest.New(t, "node")
	if err := errors.Join(node.Sysctl("net.netfilter.nf_conntrack_acct", "1"), node.AddAddress("lo", netip.MustParsePrefix("192.0.2.9/32"))); err != nil {
		t.Fatal(err)
	}
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin = strings.NewReader(`table ip t {
		chain out { type nat hook output priority -100; ip daddr 10.0.0.1 tcp dport 80 dnat to 127.0.0.1:8080; }
		chain after { type nat hook postrouting priority 100; tcp dport 8080 snat to 127.0.0.7; }
	}`)
	if out, err := netnstest.Output(node, nft); err != nil {
		t.Fatalf("nft: %v: %s (Debian package nftables)", err, out)
	}
	if err := node.AddLinkRoute(netip.MustParsePrefix("10.0.0.0/24"), "lo"); err != nil {
		t.Fatal(err)
	}
	netnstest.Serve(t, node, "a", netip.MustParseAddrPort("127.0.0.1:8080"))
	session, err := netnstest.Connect(t.Context(), node, netip.MustParseAddrPort("10.0.0.1:80"))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close() // the test is over
	_, i := newFake(t, wants("web"))
	for _, mode := range []setup.Mode{setup.NFTables, setup.IPTables, setup.IPVS} {
		i.Backend.Mode = mode
		err := node.Do(func() error {
			list, more, err := i.Connections(0, 10, func(*inspect.Connection) bool { return true })
			if len(list) != 1 || more {
				t.Errorf("%s: %+v", mode.Name, list)
				return err
			}
			c := list[0]
			if c.Name != "web" || c.Endpoint.String() != "127.0.0.1:8080" || c.Frontend.String() != "10.0.0.1:80" || c.Client.Addr().String() == "127.0.0.7" ||
				c.Tracked == nil || c.Tracked.State != "ESTABLISHED" || !c.Tracked.Accounted || c.ToEndpoint < 60 || c.ToClient < 60 {
				t.Errorf("%s: %+v", mode.Name, c)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
