// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
)

// relay makes the process of the world forward the connections of Service 1.
func (w *world) relay() {
	w.config.Relayed = func(key service.Key) (all service.PerFamily[*traffic.ServiceTally]) {
		if key == serviceKey(1) {
			all[service.IPv6] = &traffic.ServiceTally{
				Tally: traffic.Tally{
					At: traffic.At{
						Counts:  traffic.Counts{Connections: 7, BytesIn: 70, BytesOut: 700},
						Refused: traffic.Refusals{traffic.Unreachable: 4},
					},
					Open: 3, Failures: 2, Retries: 1,
				},
				HasBytes: true,
				Endpoints: map[netip.AddrPort]traffic.Tally{netip.MustParseAddrPort("[fd00::1]:80"): {
					At: traffic.At{Counts: traffic.Counts{Connections: 5, BytesIn: 50, BytesOut: 500}}, Open: 2, Failures: 1,
				}},
			}
		}
		return all
	}
}

// TestServiceMetrics_Relayed: in userspace mode, relayed connections and bytes are exported by Service and endpoint.
func TestServiceMetrics_Relayed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cache.SetSpec(spec(1))
		w.cache.SetSpec(spec(2))
		w.prime()
		w.relay()
		w.inMode(modeUserspace)
		const family, endpoint = `ip_family="IPv6"`, `endpoint="[fd00::1]:80"`
		askText(t, w.Metrics, "").expect(t, samples{
			sampleOf(1, "sluice_service_connections_total", family):                                7,
			sampleOf(1, "sluice_service_bytes_total", `direction="out"`, family):                   700,
			sampleOf(1, "sluice_service_open_connections", family):                                 3,
			sampleOf(1, "sluice_service_connect_failures_total", family):                           2,
			sampleOf(1, "sluice_service_connect_retries_total", family):                            1,
			sampleOf(1, "sluice_service_refused_total", family, `reason="unreachable"`):            4,
			sampleOf(1, "sluice_service_endpoint_open_connections", endpoint, family):              2,
			sampleOf(1, "sluice_service_endpoint_connections_total", endpoint, family):             5,
			sampleOf(1, "sluice_service_endpoint_bytes_total", `direction="in"`, endpoint, family): 50,
			sampleOf(1, "sluice_service_endpoint_connect_failures_total", endpoint, family):        1,
			sampleOf(2, "sluice_service_open_connections", family):                                 absent,
		})
	})
}

// TestServiceMetrics_TrackedConnections: the connections of the last reading are exported by Service and endpoint, with
// 0 for a Service that has none; without a reading, they are absent.
func TestServiceMetrics_TrackedConnections(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cache.SetSpec(spec(1))
		w.cache.SetSpec(spec(2))
		w.prime()
		const endpoint, family = `endpoint="10.0.0.7:80"`, `ip_family="IPv4"`
		key := spec(1).Key
		endpoints := map[netip.AddrPort]traffic.Carried{netip.MustParseAddrPort("10.0.0.7:80"): {Open: 2, Closed: 5}, netip.MustParseAddrPort("10.0.0.8:80"): {Open: 1}}
		flows := &traffic.Flows{Services: map[service.Key]traffic.ServiceFlows{key: {Endpoints: endpoints}}}
		w.config.Flows = func() *traffic.Flows { return flows }
		askText(t, w.Metrics, "").expect(t, samples{
			sampleOf(1, "sluice_service_open_connections", family):                    3,
			sampleOf(1, "sluice_service_endpoint_open_connections", endpoint, family): 2,
			sampleOf(2, "sluice_service_open_connections", family):                    0,
		})
		flows = nil
		askText(t, w.Metrics, "").expect(t, samples{sampleOf(1, "sluice_service_open_connections", family): absent})
	})
}
