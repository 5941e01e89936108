// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
)

func at(addr string, port uint16) service.Frontend {
	f := service.Frontend{Port: port, Protocol: service.TCP}
	if addr != "" {
		f.Addr = netip.MustParseAddr(addr)
	}
	return f
}

// TestTraffic_CountedForOwner: traffic counts for the Service that owns the frontend, a node port at every address of
// the node; without an owner, it counts for no Service.
func TestTraffic_CountedForOwner(t *testing.T) {
	one, two := serviceKey(1), serviceKey(2)
	owners := service.PerFamily[map[service.Frontend]service.Key]{
		{at("10.0.0.1", 80): one, at("192.0.2.1", 80): one, at("172.16.0.1", 30080): one, at("172.16.0.2", 30080): one, at("10.0.0.2", 80): two},
		{at("", 30080): two},
	}
	m := &Metrics{config: Config{Owner: func(family service.Family, f service.Frontend) (key service.Key, ok bool) {
		key, ok = owners[family][f]
		return key, ok
	}}}
	sums := m.sum(service.PerFamily[*traffic.Reading]{
		{Frontends: map[service.Frontend]traffic.At{
			at("10.0.0.1", 80): connected(1), at("192.0.2.1", 80): connected(2), at("172.16.0.1", 30080): connected(4), at("172.16.0.2", 30080): connected(8),
			at("10.0.0.2", 80): connected(16), at("203.0.113.1", 443): connected(64),
		}},
		{Frontends: map[service.Frontend]traffic.At{at("", 30080): connected(32)}},
	})
	for _, c := range []struct {
		family service.Family
		key    service.Key
		want   uint64
	}{{service.IPv4, one, 15}, {service.IPv4, two, 16}, {service.IPv6, one, 0}, {service.IPv6, two, 32}} {
		got := uint64(0)
		if sum := sums[c.key][c.family]; sum != nil {
			got = sum.Connections
		}
		if got != c.want {
			t.Errorf("%d for %s in %s, want %d", got, c.key, c.family, c.want)
		}
	}
}

func connected(n uint64) traffic.At { return traffic.At{Counts: traffic.Counts{Connections: n}} }

// count makes the kernel of the world count, and Service 1 own 10.9.0.1.
func (w *world) count(reading *traffic.Reading) {
	w.config.Traffic = func(context.Context) service.PerFamily[*traffic.Reading] {
		return service.PerFamily[*traffic.Reading]{reading}
	}
	w.config.Refresh = func(ctx context.Context) { _, _ = w.Amounts(ctx) }
	w.config.Owner = func(_ service.Family, f service.Frontend) (service.Key, bool) {
		return serviceKey(1), f == at("10.9.0.1", 80)
	}
}

// TestTraffic_ShownWhileKernelAnswers: traffic is exported only while the kernel answers.
func TestTraffic_ShownWhileKernelAnswers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cache.SetSpec(spec(1))
		w.prime()
		f := at("10.9.0.1", 80)
		reading := &traffic.Reading{
			Since: time.Unix(1000, 0), Bytes: true, Unallocated: 9,
			Frontends: map[service.Frontend]traffic.At{f: {
				Counts:  traffic.Counts{Connections: 3, BytesIn: 30, BytesOut: 300},
				Refused: traffic.Refusals{traffic.NoEndpoints: 5, traffic.SourceRange: 6},
			}},
			Endpoints: map[traffic.Pair]traffic.Counts{
				{Frontend: f, Endpoint: netip.MustParseAddrPort("10.0.0.1:80")}:             {Connections: 2},
				{Frontend: at("", 30080), Endpoint: netip.MustParseAddrPort("10.0.0.1:80")}: {Connections: 50},
			},
		}
		w.count(reading)
		w.inMode(modeNFTables)
		const family = `ip_family="IPv4"`
		connections, out := sampleOf(1, "sluice_service_connections_total", family), sampleOf(1, "sluice_service_bytes_total", `direction="out"`, family)
		askText(t, w.Metrics, "").expect(t, samples{
			connections: 3,
			sampleOf(1, "sluice_service_bytes_total", `direction="in"`, family): 30,
			out: 300,
			sampleOf(1, "sluice_service_refused_total", family, `reason="no-endpoints"`):               5,
			sampleOf(1, "sluice_service_refused_total", family, `reason="source-range"`):               6,
			sampleOf(1, "sluice_service_refused_total", family, `reason="limit"`):                      absent,
			sampleOf(1, "sluice_service_endpoint_connections_total", `endpoint="10.0.0.1:80"`, family): 2,
			countedSinceName + "{" + family + "}":                                                      1000,
			unallocatedName + "{" + family + "}":                                                       9,
		})
		reading.Bytes = false
		askText(t, w.Metrics, "").expect(t, samples{connections: 3, out: absent})
		w.count(nil)
		askText(t, w.Metrics, "").expect(t, samples{connections: absent, unallocatedName + "{" + family + "}": absent})
	})
}
