package faults

import (
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// awaitPicture waits until the kernel holds exactly what a picture shows.
func (p *plant) awaitPicture(family service.Family, wanted func() picture, what string) {
	p.Helper()
	for began := time.Now(); ; time.Sleep(500 * time.Microsecond) {
		want, now := wanted(), pictureOf(p.read(family))
		missing, any := want.missing(now)
		if !any && len(now) == len(want) {
			return
		}
		if time.Since(began) > eventMax {
			p.Fatalf("%s %s: %d objects instead of %d, for example %s %x is wrong: %s",
				family, what, len(now), len(want), missing.Container, missing.Name, p.witness.story(began))
		}
	}
}

// awaitRepair sees to it that an audit has found the damage, otherwise there was
// none and nothing was proven; and that a write has followed.
func (p *plant) awaitRepair(family service.Family, after time.Time, what string) {
	p.Helper()
	name := p.domains[family].name
	found := p.witness.await(p.T, what+": an audit that finds it", after, func(e aggregator.Event) bool {
		a, ok := e.(aggregator.AuditDone)
		return ok && a.Domain == name && a.Drift.Any()
	}).at
	p.witness.await(p.T, what+": a write that repairs it", found, wrote(name, dataplane.Landed))
}

// lastWrite tells when the last write after a moment had landed.
func (p *plant) lastWrite(after time.Time) time.Time {
	var last time.Time
	for _, h := range p.witness.since(after) {
		if w, ok := h.event.(aggregator.BatchWritten); ok && w.Receipt.Outcome == dataplane.Landed {
			last = h.at
		}
	}
	return last
}

// awaitRendered waits until a family's table holds exactly what was rendered for
// the Services that exist, but for some.
func (p *plant) awaitRendered(family service.Family, but map[service.Key]bool) {
	p.Helper()
	there := map[service.Key]bool{service.Node: true}
	for _, s := range liveServices {
		there[s.key()] = true
	}
	for n := range p.quiet {
		there[quietKey(n)] = true
	}
	for began := time.Now(); !p.domains[family].poison.knows(there); time.Sleep(time.Millisecond) {
		if time.Since(began) > eventMax {
			p.Fatalf("%s: not all Services were rendered", family)
		}
	}
	want := func() picture {
		return p.domains[family].poison.picture(func(key service.Key) bool { return there[key] && !but[key] })
	}
	p.awaitPicture(family, want, "what was rendered")
}

// checkQuarantined compares the status of both domains with what a family has in
// quarantine. The status follows the events a moment later.
func (p *plant) checkQuarantined(family service.Family, want ...string) {
	p.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		var here, there []string
		for _, status := range p.proxy.Status() {
			for _, q := range status.Quarantined {
				if status.Domain == p.domains[family].name {
					here = append(here, q.Key.String())
				} else {
					there = append(there, q.Key.String())
				}
			}
		}
		if slices.Equal(here, want) && len(there) == 0 {
			return
		}
		if time.Since(began) > eventMax {
			p.Fatalf("%s has %v in quarantine, want %v; the other family has %v, want none", family, here, want, there)
		}
	}
}

// checkBlameless fails when anybody was held to be at fault since a moment.
func (p *plant) checkBlameless(since time.Time) {
	p.Helper()
	for _, h := range p.witness.since(since) {
		switch h.event.(type) {
		case aggregator.Quarantined, aggregator.NodeAtFault:
			p.Errorf("somebody is held to be at fault: %s", tell(h.event))
		}
	}
}

// ms gives milliseconds for messages.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
