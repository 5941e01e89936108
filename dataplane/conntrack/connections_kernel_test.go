// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/conntracktest"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// TestKernelConnections: Connections lists the connections of one client, and no others.
func TestKernelConnections(t *testing.T) {
	for _, family := range service.Families {
		node := netnstest.New(t, "node")
		flows := small[family]
		conntracktest.Inject(t, node, flows)
		tcp := flows[len(flows)-1]
		if tcp.Protocol != unix.IPPROTO_TCP {
			t.Fatalf("the last flow is %v, want TCP", tcp)
		}
		for name, c := range map[string]struct {
			protocol service.Protocol
			from     netip.AddrPort
			want     int
		}{
			"any port":      {service.TCP, netip.AddrPortFrom(tcp.Client.Addr(), 0), 1},
			"its port":      {service.TCP, tcp.Client, 1},
			"another port":  {service.TCP, netip.AddrPortFrom(tcp.Client.Addr(), 9), 0},
			"another":       {service.TCP, netip.AddrPortFrom(tcp.Answerer.Addr(), 0), 0},
			"not this kind": {service.SCTP, netip.AddrPortFrom(tcp.Client.Addr(), 0), 0},
		} {
			err := node.Do(func() error {
				list, more, err := Connections(t.Context(), c.protocol, c.from, tcp.Destination, 5)
				if err == nil && (len(list) != c.want || more != 0) {
					t.Errorf("%v, %s: %v and %d more, want %d", family, name, list, more, c.want)
				}
				for _, one := range list {
					if one.From != tcp.Client || one.Answerer != tcp.Answerer {
						t.Errorf("%v, %s: %+v, want it from %v to %v", family, name, one, tcp.Client, tcp.Answerer)
					}
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestKernelTranslated: Translated lists each translated connection once, and no others.
func TestKernelTranslated(t *testing.T) {
	for _, family := range service.Families {
		node := netnstest.New(t, "node")
		flows := small[family]
		direct := map[service.Family]string{service.IPv4: "192.0.2.9:53", service.IPv6: "[2001:db8::9]:53"}[family]
		flows = append(slices.Clone(flows), udp(flows[0].Client.String(), direct, direct))
		conntracktest.Inject(t, node, flows)
		want := map[netip.AddrPort]bool{}
		for _, f := range flows {
			if f.Answerer != f.Destination {
				want[f.Client] = true
			}
		}
		numbers := map[uint32]bool{}
		err := node.Do(func() error {
			return Translated(t.Context(), family, func(c Connection) {
				if !want[c.From] || c.Offloaded || numbers[c.Number] {
					t.Errorf("%v: %+v", family, c)
				}
				delete(want, c.From)
				numbers[c.Number] = true
			})
		})
		if err != nil || len(want) > 0 {
			t.Errorf("%v: not listed: %v; %v", family, want, err)
		}
	}
}

// TestParseConnection_Offloaded: an offloaded connection is known by its status, because the kernel leaves its state
// out.
func TestParseConnection_Offloaded(t *testing.T) {
	for status, want := range map[uint32]bool{statusReplied: false, statusReplied | 1<<14: true} {
		attrs := netlink.AppendUint32(netlink.AppendUint32(nil, attrStatus, status), attrID, 7)
		if c := parse(attrs); c.Offloaded != want || c.Number != 7 || c.State != "" {
			t.Errorf("status %#x: %+v", status, c)
		}
	}
}
