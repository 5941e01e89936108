package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/service"
)

// healMax bounds the time from a deletion to its repair. It is generous, for
// machines that do other things at the same time; a quiet one needs a fraction of
// the target of 100 ms.
const healMax = 2 * time.Second

// TestForeignDeletionsAreHealed: whatever somebody removes is back within a moment,
// connections that do not need it notice nothing, established ones least of all,
// and the tables of others stay as they are.
func TestForeignDeletionsAreHealed(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.start()
	tr := startTraffic(t, p.network.client)
	theirs := p.listStrangers()
	for _, family := range service.Families {
		for _, d := range p.routes(family).deletions(family) {
			tr.awaitAll(t, 2)
			p.heal(tr, family, d)
			if d.ruleset {
				if left := p.ask("list tables"); strings.Contains(left, "other") || strings.Contains(left, "inet") {
					t.Errorf("the tables of others, which the operator removed, are back: %s", left)
				}
				p.mustNFT(strangers)
			} else if now := p.listStrangers(); now != theirs {
				t.Errorf("%s: the tables of others were\n%s and are\n%s", d.name, theirs, now)
			}
		}
	}
	tr.awaitAll(t, 3)
	tr.end(t)
	p.checkAdopted()
	p.stop()
}

// heal deletes and waits until the kernel holds again what it held before.
func (p *plant) heal(tr *traffic, family service.Family, d deletion) {
	p.Helper()
	hit := []service.Family{family}
	if d.both {
		hit = service.Families[:]
	}
	before := service.PerFamily[picture]{}
	for _, f := range hit {
		before[f] = pictureOf(p.read(f))
	}
	if d.refused != "" {
		if _, err := p.nft(inTable(d.refused, family)); err == nil || !strings.Contains(err.Error(), "busy") {
			p.Fatalf("%s: the kernel should refuse this as busy: %v", d.refused, err)
		}
	}
	o := d.outage(family)
	p.mustNFT(inTable(d.commands, family))
	for _, f := range hit {
		p.awaitPicture(f, func() picture { return before[f] }, d.name)
	}
	for _, f := range hit {
		p.awaitRepair(f, o.from, d.name)
	}
	o.to = p.lastWrite(o.from)
	tr.excuse(o)
	// Both times are noted by goroutines that have to wait for their turn.
	took := max(0, o.to.Sub(p.monitors[family].first(p.T, o.from)))
	p.Logf("%s %s: healed after %.1f ms", family, d.name, ms(took))
	// Some are deleted again so soon that the repair waits for that reason.
	if most := healMax + p.pauses(o.from); took > most {
		p.Errorf("%s %s: healed after %v, want %v at most", family, d.name, took, most)
	}
}

// pauses sums up what repairs had to wait since a moment because they repeat others.
func (p *plant) pauses(after time.Time) (all time.Duration) {
	for _, h := range p.witness.since(after) {
		if began, ok := h.event.(aggregator.RepairBegan); ok {
			all += began.Pause
		}
	}
	return all
}

func inTable(commands string, family service.Family) string {
	return strings.ReplaceAll(commands, "TABLE", table(family))
}
