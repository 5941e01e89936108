// Package play gives the statements of scenarios their meaning, and plays
// scenarios in a world.
package play

import (
	"context"
	"fmt"
	"net/netip"

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
