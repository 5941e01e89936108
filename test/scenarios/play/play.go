// Package play gives the statements of scenarios their meaning, and plays
// scenarios in a world.
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

// World is where a scenario is played: in network namespaces, or in memory.
type World interface {
	// Start starts the proxy, which then finds what the API says by itself.
	Start() error
	// Ask asks one question; it may be called from several goroutines. An error
	// is a broken world, not an answer.
	Ask(ctx context.Context, q fixture.Question) (fixture.Answer, error)
	Close() error
}

// Stage is one scenario at work. Statements run one after another, questions that
// follow each other at the same time.
type Stage struct {
	World
	*cluster.Cluster
	families []service.Family
	// running is set once the proxy was started, stopped while it is down.
	running, stopped bool
	// changed is set when the world has changed since it was last settled, and
	// round counts how often it was.
	changed bool
	round   int
	// kept is what statements keep under a name: sessions, flows, listings.
	kept map[string]any
	// closers run at the end, the newest first.
	closers []func() error
}

func newStage(world World, server cluster.Server, families []service.Family) *Stage {
	return &Stage{World: world, Cluster: cluster.New(server), families: families, changed: true, kept: make(map[string]any)}
}

// ready makes sure that the proxy runs, unless it was stopped, and has obeyed
// everything so far.
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

// atEnd has something done when the scenario is over.
func (s *Stage) atEnd(f func() error) { s.closers = append(s.closers, f) }

// keep stores what a statement makes, and kept gives it back.
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

// settleStep is the pause between two looks at the sentinel.
const settleStep = 5 * time.Millisecond

// sentinel is a Service that changes whenever anything has, and so tells when the
// proxy has obeyed, however the proxy works: its port and its endpoint are
// others in each round.
const sentinel = "sentinel"

// settle waits until the rules have followed the API.
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
				return fmt.Errorf("the proxy has not obeyed the last change within %v: the sentinel's %v got %v, %v", settleMax, q, got, err)
			}
			if err := sleep(ctx, settleStep); err != nil {
				return err
			}
		}
	}
	return sleep(ctx, settleRest)
}

// alive is an error if the proxy has ended where it is a process, so that nobody
// waits for one that is gone.
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

// How long things may take. Waits that end early cost nothing when all is well, and
// are long because machines of tests are slow and shared; how fast a proxy is is
// not the question here.
var (
	// answerPatience is how long a client waits that will be answered or refused.
	answerPatience = 5 * time.Second
	// silencePatience is how long silence is waited for. A false silence can only
	// be reported where silence is expected.
	silencePatience = 500 * time.Millisecond
	// holdMax bounds the time until a question has the wanted answers. The list of
	// scenarios says 2 s; the rest is for slow machines.
	holdMax = 10 * time.Second
	// settleMax bounds the wait for a change, and sentinelPatience that for one
	// answer of the sentinel.
	settleMax        = 20 * time.Second
	sentinelPatience = 200 * time.Millisecond
	// settleRest is what is added for changes that took another way to the proxy
	// than the sentinel's.
	settleRest = 40 * time.Millisecond
	// echoMax is how long an echo may take. A connection that is dead shows nothing
	// but silence.
	echoMax = 2 * time.Second
)

// SlowDown makes all waits longer, for a machine that is emulated. It is called
// before anything is played.
func SlowDown(factor int) {
	for _, wait := range []*time.Duration{
		&answerPatience, &silencePatience, &holdMax, &settleMax, &sentinelPatience, &settleRest, &echoMax,
	} {
		*wait *= time.Duration(factor)
	}
}
