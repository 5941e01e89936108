// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"context"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// again decides when to look again at destinations with flows of clients that met no rule. Like doubts, it is pure.
//
// The answer to such a client may still be on its way when its flow is deleted. If it arrives before the client's next
// packet, it begins a flow in the other direction, to which this packet belongs, so that no rule sees it, and it is
// answered again. Each deletion is such a race. So a sweep deletes the flows of such answers for a moment, whenever they
// begin (press). Looks follow at a short pause as long as they find any, and at growing pauses for answers with a long way.
type again map[destination]*revisit

// revisit is one destination, and the Service that has it. Looks are those that were due.
type revisit struct {
	by service.Key
	// at is when the next look is due; zero until the one that was due is complete.
	at    time.Time
	pause time.Duration
	looks int
}

const (
	// againMin is the pause after a look that found something. It doubles with each of the others.
	againMin = 10 * time.Millisecond
	// quickLooks is the number of looks after which the pause is againSlow, and looksMax bounds all: a program may keep its
	// own flows untranslated.
	quickLooks, looksMax = 20, 30
	againSlow            = time.Second
)

// For pressRounds times pressPause, a sweep deletes the flows of answers as they begin; those to pressMax clients at most.
// Others depend on looks.
const (
	pressRounds = 40
	pressPause  = 500 * time.Microsecond
	pressMax    = 8 * removeBatch
)

// stray takes note of a flow of a client that met no rule, or of answers to one.
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

// press deletes the flows of answers for a moment.
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

// due returns the destinations to look at now. They count as looked at with the next complete sweep.
func (a again) due(now time.Time) (due []destination) {
	for d, r := range a {
		if !r.at.IsZero() && !now.Before(r.at) {
			r.at = time.Time{}
			due = append(due, d)
		}
	}
	return due
}

// swept takes and clears the destinations at which a complete sweep has found such flows, each with its Service.
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

// next returns when the next look is due; zero for never.
func (a again) next() (at time.Time) {
	for _, r := range a {
		if !r.at.IsZero() && (at.IsZero() || r.at.Before(at)) {
			at = r.at
		}
	}
	return at
}
