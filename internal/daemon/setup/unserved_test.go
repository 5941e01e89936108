// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
)

// TestUnserved_NodeFamily: a start fails if the Node has an InternalIP of a family that the mode does not serve.
func TestUnserved_NodeFamily(t *testing.T) {
	b := &Backend{Mode: IPTables, Domains: []proxy.Domain{
		{Family: service.IPv6}, {Family: service.IPv4, Auxiliary: true}}, lacks: backend.Lacks{service.IPv4: errors.New("no NAT")}}
	six, four := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("192.0.2.1")
	for _, c := range []struct {
		node *service.NodeObject
		want string
	}{
		{nil, ""},
		{&service.NodeObject{}, ""},
		{&service.NodeObject{Addresses: []netip.Addr{six}, Internal: service.PerFamily[bool]{service.IPv6: true}}, ""},
		{&service.NodeObject{Addresses: []netip.Addr{six, four}, Internal: service.PerFamily[bool]{service.IPv6: true}}, ""},
		{&service.NodeObject{Addresses: []netip.Addr{six, four}, Internal: service.PerFamily[bool]{true, true}}, "IPv4 address 192.0.2.1, but mode iptables cannot serve IPv4 on this host: no NAT\n"},
	} {
		if err := b.Unserved(c.node); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.node, err, c.want)
		}
	}
}
