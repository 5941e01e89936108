// SPDX-License-Identifier: Apache-2.0

// Package play defines what the statements of scenarios mean, and plays scenarios in a world. It
// owns the state of a scenario while it runs. The command scenarios and the tests of models call
// it.
package play

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/cluster"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// World is what a scenario is played in: network namespaces, or a model.
type World interface {
	// Start starts the proxy, which reads the API by itself.
	Start() error
	// Ask asks one question. It may be called from several goroutines. An error means that the
	// world is broken.
	Ask(ctx context.Context, q fixture.Question) (fixture.Answer, error)
	Close() error
}

// Stage is a scenario that is being played. Statements run one after another, consecutive questions
// at the same time.
type Stage struct {
	World
	*cluster.Cluster
	families []service.Family
	// running is set once the proxy was started, stopped after it was stopped.
	running, stopped bool
	// changed is set when the world has changed since it last settled. round counts how often it
	// settled.
	changed bool
	round   int
	// kept is what statements store under a name, such as sessions and flows.
	kept map[string]any
	// compare, if set, is told the answers to a question, once they are as wanted.
	compare func(context.Context, fixture.Question, map[fixture.Answer]int) error
	// closers run at the end, the newest first.
	closers []func() error
}

func newStage(world World, server cluster.Server, families []service.Family) *Stage {
	return &Stage{World: world, Cluster: cluster.New(server), families: families, changed: true, kept: make(map[string]any)}
}

// ready starts the proxy unless it was stopped, and waits until every change has taken effect.
func (s *Stage) ready(ctx context.Context) error {
	if s.stopped {
		return nil
	}
	if !s.running {
		if err := s.Start(); err != nil {
			return err
		}
		s.running, s.changed = true, true
	}
	if !s.changed {
		return nil
	}
	s.changed = false
	return s.settle(ctx)
}

// atEnd registers a function for the end of the scenario.
func (s *Stage) atEnd(f func() error) { s.closers = append(s.closers, f) }

// compared passes answers to whoever compares them, unless the proxy may not have written yet.
func (s *Stage) compared(ctx context.Context, q fixture.Question, seen map[fixture.Answer]int) error {
	if s.compare == nil || s.stopped || s.round == 0 {
		return nil
	}
	return s.compare(ctx, q, seen)
}

// keep stores a value under a name. kept returns it.
func keep[T any](s *Stage, name string, value T) { s.kept[fmt.Sprintf("%T %s", value, name)] = value }

func kept[T any](s *Stage, name string) (T, error) {
	var none T
	value, ok := s.kept[fmt.Sprintf("%T %s", none, name)].(T)
	if !ok {
		return none, fmt.Errorf("nothing is kept under the name %q", name)
	}
	return value, nil
}

// serviceIP returns the ClusterIP of a Service in a family.
func (s *Stage) serviceIP(name string, family service.Family) (netip.Addr, error) {
	if object := s.Service(name); object != nil {
		for _, text := range object.Spec.ClusterIPs {
			if a, err := netip.ParseAddr(text); err == nil && service.FamilyOf(a) == family {
				return a, nil
			}
		}
	}
	return s.Numbered(name, family)
}

// Play plays a plan in a world and leaves the world open. The error says which line did not hold,
// and what was seen instead.
func (p *Plan) Play(ctx context.Context, world World, server cluster.Server) error {
	s := newStage(world, server, p.Families)
	s.compare = p.Compare
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

// questionsFrom counts the consecutive questions from a step on.
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

// settleStep is the pause between two questions to the sentinel.
const settleStep = 5 * time.Millisecond

// sentinel is a Service that changes after every other change, and so shows when that has taken
// effect, independent of how the proxy works. Each round gives it another port and endpoint.
const sentinel = "sentinel"

// settle waits until every change has taken effect.
func (s *Stage) settle(ctx context.Context) error {
	s.round++
	port, endpoint := uint16(20000+s.round), []string{"a", "b"}[s.round%2]
	if err := s.ChangeService(sentinel, []string{"clusterips=sentinel", fmt.Sprintf("ports=p:%d", port)}); err != nil {
		return err
	}
	if err := s.SetSlice("main", []string{"of=" + sentinel, endpoint}); err != nil {
		return err
	}
	deadline := time.Now().Add(settleMax)
	for _, family := range s.families {
		q := fixture.Question{
			Family: family, From: "p1", Protocol: service.TCP, Patience: sentinelPatience,
			To: netip.AddrPortFrom(fixture.MustAddress(family, "sentinel"), port),
		}
		for {
			got, err := s.Ask(ctx, q)
			if err == nil && got.Name == endpoint {
				break
			}
			if ended := s.alive(); ended != nil {
				return ended
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("the last change has not taken effect within %v: the sentinel's %v got %v, %v", settleMax, q, got, err)
			}
			if err := sleep(ctx, settleStep); err != nil {
				return err
			}
		}
	}
	return sleep(ctx, settleRest)
}

// alive returns an error if the proxy is a process and has ended, so that no wait goes on without
// it.
func (s *Stage) alive() error {
	if process, ok := s.World.(interface{ Alive() error }); ok {
		return process.Alive()
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Limits of waits. They are long because test machines are slow and shared, and usually end early.
// The scenarios do not measure how fast a proxy is.
var (
	// answerPatience is how long a client waits for an answer or a refusal, askPatience how long one waits
	// that asks again.
	answerPatience = 20 * time.Second
	askPatience    = 5 * time.Second
	// silencePatience is how long a client waits where silence is expected.
	silencePatience = 500 * time.Millisecond
	// holdMax bounds the time until a question holds. The list of scenarios says 2 s; the rest is
	// for slow machines.
	holdMax = 20 * time.Second
	// settleMax bounds the wait for a change, and sentinelPatience that for one answer of the
	// sentinel.
	settleMax        = time.Minute
	sentinelPatience = 200 * time.Millisecond
	// settleRest is added for changes that reach the proxy on another path than the sentinel's.
	settleRest = 40 * time.Millisecond
	// echoMax is how long an echo may take, and silentMax how long one is waited for on a connection
	// that is expected to be dead.
	echoMax   = 20 * time.Second
	silentMax = 2 * time.Second
	// slowness multiplies the limits that scenarios contain.
	slowness time.Duration = 1
)

// SlowDown multiplies every limit, for an emulated machine. It must be called before anything is
// played.
func SlowDown(factor int) {
	for _, wait := range []*time.Duration{
		&answerPatience, &askPatience, &silencePatience, &holdMax, &settleMax, &sentinelPatience, &settleRest, &echoMax, &silentMax, &slowness,
	} {
		*wait *= time.Duration(factor)
	}
}
