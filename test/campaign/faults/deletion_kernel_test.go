// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestRepair_ForeignDeletions: objects that another program deletes are restored within a moment. Connections that do
// not need them are not affected, and other programs' tables do not change.
func TestRepair_ForeignDeletions(t *testing.T) {
	t.Parallel()
	p := newProxyNode(t)
	p.start()
	tr := startTraffic(t, p.network.client)
	theirs := p.listForeignTables()
	for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
		for _, d := range p.routes(family).deletions(family) {
			tr.awaitAll(t, 2)
			p.heal(tr, family, d)
			if d.ruleset {
				if left := p.ask("list tables"); strings.Contains(left, "other") || strings.Contains(left, "inet") {
					t.Errorf("the tables of others, which the operator removed, are back: %s", left)
				}
				p.mustNFT(foreignTables)
			} else if now := p.listForeignTables(); now != theirs {
				t.Errorf("%s: the tables of others were\n%s and are\n%s", d.name, theirs, now)
			}
		}
	}
	tr.awaitAll(t, 3)
	tr.end(t)
	p.checkAdopted()
	p.stop()
}

// heal deletes and waits until the kernel's content is as before.
func (p *proxyNode) heal(tr *traffic, family service.Family, d deletion) {
	p.Helper()
	hit := []service.Family{family}
	if d.both {
		hit = service.Families[:]
	}
	before := service.PerFamily[contents]{}
	for _, f := range hit {
		before[f] = contentsOf(p.read(f))
	}
	if d.rejected != "" {
		if _, err := p.nft(inTable(d.rejected, family)); err == nil || !strings.Contains(err.Error(), "busy") {
			p.Fatalf("%s: the kernel should reject this as busy: %v", d.rejected, err)
		}
	}
	o := d.outage(family)
	p.mustNFT(inTable(d.commands, family))
	for _, f := range hit {
		p.awaitContents(f, func() contents { return before[f] }, d.name)
	}
	for _, f := range hit {
		p.awaitRepair(f, o.From, d.name)
	}
	o.To = p.lastWrite(o.From)
	tr.allow(o)
	for _, f := range hit {
		p.checkWork(f, o.From, 1, d.name)
	}
	p.Logf("%s %s: healed after %.1f ms", family, d.name, ms(o.To.Sub(o.From)))
}

func inTable(commands string, family service.Family) string {
	return strings.ReplaceAll(commands, "TABLE", table(family))
}

// TestRepair_ForeignDeletionsUnderChurn: deleted objects are restored while other Services change all the time and
// writes may fail. No Service is blamed, and neither retries nor later changes delay the repair.
func TestRepair_ForeignDeletionsUnderChurn(t *testing.T) {
	testenv.OnlyInAll(t)
	t.Parallel()
	p := newProxyNode(t)
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

// healUnderChurn deletes and waits until everything that churn leaves alone is as before.
func (p *proxyNode) healUnderChurn(tr *traffic, family service.Family, d deletion) {
	p.Helper()
	hit := []service.Family{family}
	if d.both {
		hit = service.Families[:]
	}
	o := d.outage(family)
	p.mustNFT(inTable(d.commands, family))
	struck := time.Now()
	for _, f := range hit {
		want := p.domains[f].renderer.contents(isUnchanged)
		for {
			id, any := want.missing(contentsOf(p.read(f)))
			if !any {
				break
			}
			if time.Since(struck) > testenv.Patience {
				p.Fatalf("%s %s: %s %x is still missing: %s", f, d.name, id.Container, id.Name, p.events.list(o.From))
			}
		}
	}
	o.To = time.Now()
	tr.allow(o)
	p.Logf("%s %s: healed %.1f ms after nft had returned", family, d.name, ms(o.To.Sub(struck)))
}

// TestRepair_DeletionDuringAudit: a deletion during an audit causes another audit immediately, which finds objects that
// were deleted after the first audit had read them.
func TestRepair_DeletionDuringAudit(t *testing.T) {
	testenv.OnlyInAll(t)
	t.Parallel()
	p := newProxyNode(t)
	p.start()
	for _, family := range service.Families {
		before := contentsOf(p.read(family))
		found := p.routes(family).deletions(family)
		first, second := found[0], found[len(found)-4]
		p.domains[family].writer.onceRead(func() {
			p.mustNFT(inTable(second.commands, family))
			time.Sleep(20 * time.Millisecond) // the news has come
		})
		began := time.Now()
		p.mustNFT(inTable(first.commands, family))
		p.awaitContents(family, func() contents { return before }, second.name)
		p.awaitRepair(family, began, second.name)
		p.checkWork(family, began, 2, second.name)
		p.Logf("%s: %s, then %s: healed after %.1f ms", family, first.name, second.name, ms(time.Since(began)))
	}
	p.checkAdopted()
	p.stop()
}
