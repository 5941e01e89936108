// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"context"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// again decides when to judge flows to a destination again after a sweep found clients there that met no rule. Like
// doubts, it is pure.
//
// The answer to such a client may still be on its way when the sweep deletes the flow. If the answer arrives before the
// client's next packet, it begins a flow in the other direction. The packet belongs to this flow, so no rule sees it,
// and another answer follows. Each deletion is such a race. So a sweep deletes the flows of such answers for a short
// time as they begin (press). Further sweeps follow after a short pause while they find such flows, and then after
// growing pauses, for answers with a long way.
type again map[destination]*revisit

// revisit is one destination, and the Service that owns it.
type revisit struct {
	by service.Key
	// at is the time of the next look; zero while a look is due but not complete.
	at    time.Time
	pause time.Duration
	// looks counts the looks that were due.
	looks int
}

const (
	// againMin is the pause after a look that found flows. It doubles with each look that found none.
	againMin = 10 * time.Millisecond
	// quickLooks is the number of looks after which the pause is againSlow. looksMax is the maximum number of looks,
	// because a program may keep its own flows untranslated.
	quickLooks, looksMax = 20, 30
	againSlow            = time.Second
)

// A sweep deletes the flows of answers to at most pressMax clients as they begin, in pressRounds rounds with pauses of
// pressPause. Flows of other answers depend on looks.
const (
	pressRounds = 40
	pressPause  = 500 * time.Microsecond
	pressMax    = 8 * removeBatch
)

// stray records a flow of a client that met no rule, or of answers to such a client.
func (s *sweep) stray(f *flow, why *blame) {
	for _, d := range [...]destination{f.Destination(), f.Source()} {
		if d.Port != 0 && s.table.owner(d) != nil {
			s.astray[d] = why.by
		}
	}
	if answers := f.Description.Answers(why.reversed); answers != nil && len(s.pressed) < pressMax {
		s.pressed = append(s.pressed, answers)
	}
}

// press deletes the flows of answers for a short time.
func (s *sweep) press(ctx context.Context) error {
	for range pressRounds {
		if len(s.pressed) == 0 || ctx.Err() != nil {
			break
		}
		time.Sleep(pressPause)
		if _, err := s.kernel.Delete(s.pressed); err != nil {
			return err
		}
	}
	return nil
}

// due returns the destinations whose look is due. The next complete sweep completes these looks.
func (a again) due(now time.Time) (due []destination) {
	for d, r := range a {
		if !r.at.IsZero() && !now.Before(r.at) {
			r.at = time.Time{}
			due = append(due, d)
		}
	}
	return due
}

// swept receives, and clears, the destinations at which a complete sweep found such flows, each with its Service.
func (a again) swept(end time.Time, astray map[destination]service.Key) {
	for d, r := range a {
		if !r.at.IsZero() {
			continue
		}
		r.looks++
		_, found := astray[d]
		if r.pause *= 2; !found && r.pause > againSlow || r.looks >= looksMax {
			delete(astray, d)
			delete(a, d)
		}
		r.at = end.Add(r.pause)
	}
	for d, by := range astray {
		r := a[d]
		if r == nil {
			r = &revisit{}
			a[d] = r
		}
		if r.by, r.pause = by, againMin; r.looks >= quickLooks {
			r.pause = againSlow
		}
		r.at = end.Add(r.pause)
	}
	clear(astray)
}

// next returns the time of the next look; zero means never.
func (a again) next() (at time.Time) {
	for _, r := range a {
		if !r.at.IsZero() && (at.IsZero() || r.at.Before(at)) {
			at = r.at
		}
	}
	return at
}
