package conntrack

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// TestKernelConnections asks for those of one client among others.
func TestKernelConnections(t *testing.T) {
	for _, family := range service.Families {
		node := newNode(t)
		flows := small[family]
		inject(t, node, family, flows)
		tcp := flows[len(flows)-1]
		if tcp.protocol != unix.IPPROTO_TCP {
			t.Fatalf("the last flow is %v, want TCP", tcp)
		}
		for name, c := range map[string]struct {
			protocol service.Protocol
			from     netip.AddrPort
			want     int
		}{
			"any port":      {service.TCP, netip.AddrPortFrom(tcp.client.Addr(), 0), 1},
			"its port":      {service.TCP, tcp.client, 1},
			"another port":  {service.TCP, netip.AddrPortFrom(tcp.client.Addr(), 9), 0},
			"another":       {service.TCP, netip.AddrPortFrom(tcp.answerer.Addr(), 0), 0},
			"not this kind": {service.SCTP, netip.AddrPortFrom(tcp.client.Addr(), 0), 0},
		} {
			err := node.Do(func() error {
				list, more, err := Connections(t.Context(), c.protocol, c.from, tcp.destination, 5)
				if err == nil && (len(list) != c.want || more != 0) {
					t.Errorf("%v, %s: %v and %d more, want %d", family, name, list, more, c.want)
				}
				for _, one := range list {
					if one.From != tcp.client || one.Answerer != tcp.answerer {
						t.Errorf("%v, %s: %+v, want it from %v to %v", family, name, one, tcp.client, tcp.answerer)
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
