// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/terminal"
)

// TestConnections_Pages: the client joins the pages of connections, and filters select connections.
func TestConnections_Pages(t *testing.T) {
	const many = 2*ConnectionsMax + 5
	ctx, c := t.Context(), served(t, &stand{connections: many})
	for _, tt := range []struct {
		q    ConnectionQuery
		want int
	}{
		{ConnectionQuery{}, many}, {ConnectionQuery{Namespace: "shop", Name: "web", Protocol: "tcp"}, many},
		{ConnectionQuery{Namespace: "other"}, 0}, {ConnectionQuery{Name: "db"}, 0}, {ConnectionQuery{Protocol: "udp"}, 0},
		{ConnectionQuery{Client: "192.0.2.1"}, many/2 + 1}, {ConnectionQuery{Client: "192.0.2.1:7"}, 1}, {ConnectionQuery{Client: "192.0.2.0:7"}, 0},
		{ConnectionQuery{Endpoint: "fd00::1"}, many}, {ConnectionQuery{Endpoint: "[fd00::1]:8080"}, many}, {ConnectionQuery{Endpoint: "[fd00::1]:80"}, 0},
	} {
		l, err := c.Connections(ctx, &tt.q)
		if err != nil || len(l.Items) != tt.want || l.Continue != 0 || l.APIVersion != Version || l.Items == nil {
			t.Errorf("%+v: %d connections, want %d; %v", tt.q, len(l.Items), tt.want, err)
			continue
		}
		for i := range l.Items[min(1, tt.want):] {
			if l.Items[i].Number >= l.Items[i+1].Number {
				t.Errorf("%+v: %d before %d", tt.q, l.Items[i].Number, l.Items[i+1].Number)
			}
		}
	}
	for q, want := range map[ConnectionQuery]string{
		{Protocol: "sctp"}: `protocol "sctp": must be tcp or udp`, {Client: "me"}: `client "me": must be an address like`, {Endpoint: "10.0.0.1:x"}: `endpoint "10.0.0.1:x"`,
	} {
		if _, err := c.Connections(ctx, &q); err == nil || !strings.Contains(err.Error(), want) || q.Check() == nil {
			t.Errorf("%+v: %v", q, err)
		}
	}
	if page, err := get[ConnectionList](ctx, c, PathConnections, map[string][]string{"limit": {"999999"}}); err != nil || len(page.Items) != ConnectionsMax || page.Continue != ConnectionsMax {
		t.Errorf("%v", err)
	}
	if _, err := get[ConnectionList](ctx, c, PathConnections, map[string][]string{"continue": {"x"}}); err == nil || !strings.Contains(err.Error(), `continue "x"`) {
		t.Error(err)
	}
	elsewhere := served(t, &stand{fail: errors.New("mode nftables: the kernel has the connections")})
	if _, err := elsewhere.Connections(ctx, &ConnectionQuery{}); err == nil || err.Error() != "mode nftables: the kernel has the connections" {
		t.Error(err)
	}
}

// TestTracked_Print: tracked connections are printed as a table with their state.
func TestTracked_Print(t *testing.T) {
	at := netip.MustParseAddrPort
	l := ConnectionList{Items: []Connection{
		{Namespace: "shop", Name: "web", PortName: "http", Protocol: "tcp", Client: at("192.0.2.7:40312"),
			Frontend: at("10.96.0.12:80"), Endpoint: at("10.244.1.21:8080"), Tracked: &Tracked{Offloaded: true}},
		{Namespace: "shop", Name: "web", PortName: "http", Protocol: "tcp", Client: at("192.0.2.7:40313"),
			Frontend: at("10.96.0.12:80"), Endpoint: at("10.244.1.22:8080"), Tracked: &Tracked{State: "FIN_WAIT"}},
		{Namespace: "dns", Name: "dns", Protocol: "udp", Client: at("[fd00::7]:5"), Frontend: at("[fd00::1]:53"), Endpoint: at("[fd00::2]:53"), Tracked: &Tracked{}},
	}}
	var b terminal.Page
	const want = `PROTOCOL   CLIENT            SERVICE         FRONTEND        ENDPOINT           STATE
tcp        192.0.2.7:40312   shop/web:http   10.96.0.12:80   10.244.1.21:8080   offloaded
tcp        192.0.2.7:40313   shop/web:http   10.96.0.12:80   10.244.1.22:8080   FIN_WAIT
udp        [fd00::7]:5       dns/dns         [fd00::1]:53    [fd00::2]:53       -
`
	if l.Print(&b); b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	l.Items[1].Tracked.Accounted, l.Items[1].ToEndpoint, l.Items[1].ToClient = true, 412, 18_230
	const accounted = `PROTOCOL   CLIENT            SERVICE         FRONTEND        ENDPOINT           STATE       TO ENDPOINT   TO CLIENT
tcp        192.0.2.7:40312   shop/web:http   10.96.0.12:80   10.244.1.21:8080   offloaded   -             -
tcp        192.0.2.7:40313   shop/web:http   10.96.0.12:80   10.244.1.22:8080   FIN_WAIT    412           18.2k
`
	l.Items = l.Items[:2]
	if l.Print(&b); b.String() != accounted {
		t.Errorf("%s\nwant\n%s", b.String(), accounted)
	}
}

// TestConnections_Print: relayed connections are printed as a table with their bytes and age.
func TestConnections_Print(t *testing.T) {
	now := time.Now()
	l := ConnectionList{Now: now, Items: []Connection{
		{Namespace: "shop", Name: "web", PortName: "http", Protocol: "tcp", Client: netip.MustParseAddrPort("192.0.2.7:40312"),
			Frontend: netip.MustParseAddrPort("10.96.0.12:80"), Endpoint: netip.MustParseAddrPort("10.244.1.21:8080"), ToEndpoint: 412, ToClient: 18_230, Began: now.Add(-time.Minute)},
		{Namespace: "dns", Name: "dns", Protocol: "udp", Client: netip.MustParseAddrPort("[fd00::7]:5"),
			Frontend: netip.MustParseAddrPort("[fd00::1]:53"), Endpoint: netip.MustParseAddrPort("[fd00::2]:53"), ToClient: 5_432_100_000, Began: now},
	}}
	var b terminal.Page
	const want = `PROTOCOL   CLIENT            SERVICE         FRONTEND        ENDPOINT           TO ENDPOINT   TO CLIENT   AGE
tcp        192.0.2.7:40312   shop/web:http   10.96.0.12:80   10.244.1.21:8080   412           18.2k       60s
udp        [fd00::7]:5       dns/dns         [fd00::1]:53    [fd00::2]:53       0             5.4G        0ms
`
	if l.Print(&b); b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}
