package faults

import (
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// TestADeletionDuringAnAuditIsHealed: what is deleted after the audit has read it,
// and before the audit has ended, is found by the next one, at once.
func TestADeletionDuringAnAuditIsHealed(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.start()
	for _, family := range service.Families {
		before := pictureOf(p.read(family))
		found := p.routes(family).deletions(family)
		first, second := found[0], found[len(found)-4]
		p.domains[family].notary.onceRead(func() {
			p.mustNFT(inTable(second.commands, family))
			time.Sleep(20 * time.Millisecond) // the news has come
		})
		began := time.Now()
		p.mustNFT(inTable(first.commands, family))
		p.awaitPicture(family, func() picture { return before }, second.name)
		p.Logf("%s: %s, then %s: healed after %.1f ms", family, first.name, second.name, ms(time.Since(began)))
		if took := time.Since(began); took > healMax {
			t.Errorf("%s: healed after %v, want %v at most", family, took, healMax)
		}
	}
	p.checkAdopted()
	p.stop()
}
