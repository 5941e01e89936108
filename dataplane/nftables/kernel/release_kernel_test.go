// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/service"
)

// changing is the n-th Service in one of its states. Each removes some of what the others
// need: chains and maps of clients, slots, ranges, node ports, class chains.
func changing(n, state int) *service.View {
	view := plain(n, 3, 0)
	port := &view.Ports[service.IPv4][0]
	switch state % 5 {
	case 0:
		port.AffinitySeconds = 60
	case 1:
		port.AffinitySeconds = 90
		port.Cluster = port.Cluster[1:] // the others move
	case 2:
		port.LoadBalancerVIPs = []netip.Addr{netip.AddrFrom4([4]byte{198, 51, byte(n >> 8), byte(n)})}
		port.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.0/25")}
		port.NodePort = uint16(30000 + n)
	case 3:
		port.LoadBalancerVIPs = []netip.Addr{netip.AddrFrom4([4]byte{198, 51, byte(n >> 8), byte(n)})}
		port.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/9"), netip.MustParsePrefix("192.0.2.0/24")}
		port.AffinitySeconds = 60
		port.NodePort = uint16(30000 + n)
	default:
		*view = *plain(n, 40+n%40, 1)
	}
	return view
}

// TestWriter_RemovedObjectsAreReleased: the kernel accepts the removal and new addition of every kind of object, in one
// transaction and in many.
func TestWriter_RemovedObjectsAreReleased(t *testing.T) {
	const services, states = 40, 5
	for name, config := range map[string]kernel.WriterConfig{
		"together": {},
		"divided":  {TransactionBytes: 8 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, service.IPv4, config)
			most := 0
			for state := range 2 * states {
				for n := range services {
					switch {
					case state >= states && (state+n)%3 == 0:
						w.want(changing(n, 0).Key, nil)
					default:
						w.serve(changing(n, state+n))
					}
				}
				most = max(most, w.commit().Written.Calls)
				if drift := w.audit(); drift.Any() {
					t.Fatalf("after step %d: %+v", state, drift)
				}
			}
			for n := range services {
				w.want(changing(n, 0).Key, nil)
			}
			calls := w.commit().Written.Calls
			if drift := w.audit(); drift.Any() {
				t.Errorf("after all had gone: %+v", drift)
			}
			if config.TransactionBytes == 0 && (calls != 1 || most != 1) {
				t.Errorf("all went in %d transactions, steps in up to %d, want 1", calls, most)
			}
		})
	}
}
