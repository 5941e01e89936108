package faults

import (
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// TestForeignDeletionsAreHealedUnderChurn: while other Services change all the
// time, a write may lose the ground under its feet. It convicts nobody, and
// neither its retries nor the changes that come after it keep the repair waiting.
func TestForeignDeletionsAreHealedUnderChurn(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.watchEach = 10 // there is one every few milliseconds, and healing is measured
	p.start()
	tr := startTraffic(t, p.network.client)
	began := time.Now()
	found := service.PerFamily[routes]{p.routes(service.IPv4), p.routes(service.IPv6)}
	c := startChurn(p.cache)
	for _, family := range service.Families {
		for _, d := range found[family].deletions(family) {
			if d.ruleset {
				continue
			}
			tr.awaitAll(t, 2)
			p.healUnderChurn(tr, family, d)
		}
	}
	c.end()
	tr.end(t)
	p.checkBlameless(began)
	for _, family := range service.Families {
		p.awaitRendered(family, nil)
	}
	p.checkAdopted()
	p.stop()
}

// healUnderChurn deletes and waits until what does not change is back.
func (p *plant) healUnderChurn(tr *traffic, family service.Family, d deletion) {
	p.Helper()
	hit := []service.Family{family}
	if d.both {
		hit = service.Families[:]
	}
	o := d.outage(family)
	p.mustNFT(inTable(d.commands, family))
	struck := time.Now()
	for _, f := range hit {
		want := p.domains[f].poison.picture(isCalm)
		for {
			id, any := want.missing(pictureOf(p.read(f)))
			if !any {
				break
			}
			if time.Since(struck) > eventMax {
				p.Fatalf("%s %s: %s %x is still missing: %s", f, d.name, id.Container, id.Name, p.witness.story(o.from))
			}
		}
	}
	o.to = time.Now()
	tr.excuse(o)
	took := o.to.Sub(struck)
	p.Logf("%s %s: healed %.1f ms after nft had returned", family, d.name, ms(took))
	if took > healMax {
		p.Errorf("%s %s: healed after %v, want %v at most", family, d.name, took, healMax)
	}
}
