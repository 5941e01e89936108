package faults

import (
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/service"
)

// TestARestartBesideARefusedService: a Service is refused, and processes come and go
// beside it, with changes that nobody has seen. Nobody's connections notice: neither the
// neighbours' nor, on its last good rules, the Service's own.
func TestARestartBesideARefusedService(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.start()
	tr := startTraffic(t, p.network.client)
	key := trio.key()
	for i, v := range venoms {
		family := service.Families[i%2]
		tr.awaitAll(t, 2)
		p.Logf("%s %s", family, v.name)
		p.spoiled[family] = map[service.Key]venom{key: v}
		for range 2 {
			p.stop()
			began := time.Now()
			p.start()
			p.witness.await(t, "quarantine", began, func(e aggregator.Event) bool {
				q, ok := e.(aggregator.Quarantined)
				return ok && q.Domain == p.domains[family].name && q.Key == key
			})
			p.checkQuarantined(family, key.String())
			changed := time.Now()
			p.setPods(pair, pair.second()...)
			tr.awaitPod(t, pod{family, pair.podName(pair.endpoints)}, changed)
			p.setPods(pair, pair.first()...)
			p.witness.await(t, "things as they were", changed, applied(p.domains[family].name, pair.key()))
			tr.awaitAll(t, 2)
		}
		p.spoiled[family] = nil
		p.stop()
		p.start()
		p.checkQuarantined(family)
	}
	tr.end(t)
	p.checkAdopted()
	p.stop()
}
