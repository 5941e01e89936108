package play

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-proxy/sluice/test/scenarios/cluster"
)

// Play plays a plan in a world, which it leaves open. The error says which line
// did not hold, and what was seen instead.
func (p *Plan) Play(ctx context.Context, world World, server cluster.Server) error {
	s := newStage(world, server, p.Families)
	err := p.play(ctx, s)
	var errs []error
	for _, f := range slices.Backward(s.closers) {
		errs = append(errs, f())
	}
	return errors.Join(append([]error{err}, errs...)...)
}

func (p *Plan) play(ctx context.Context, s *Stage) error {
	for at := 0; at < len(p.steps); {
		questions := p.questionsFrom(at)
		if questions == 0 {
			if err := p.steps[at].run(ctx, s); err != nil {
				return p.failed(p.steps[at], err)
			}
			at++
			continue
		}
		if err := s.ready(ctx); err != nil {
			return p.failed(p.steps[at], err)
		}
		var all errgroup.Group
		for _, q := range p.steps[at : at+questions] {
			all.Go(func() error {
				if err := q.run(ctx, s); err != nil {
					return p.failed(q, err)
				}
				return nil
			})
		}
		if err := all.Wait(); err != nil {
			return err
		}
		at += questions
	}
	return nil
}

// questionsFrom counts the questions that follow each other from a step on.
func (p *Plan) questionsFrom(at int) int {
	n := 0
	for _, st := range p.steps[at:] {
		if _, ok := st.statement.(ask); !ok {
			break
		}
		n++
	}
	return n
}

func (p *Plan) failed(st step, err error) error {
	return fmt.Errorf("%s:%d: %s: %w", p.File, st.line.Number, st.line.Text, err)
}
