// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/service"
)

// setting is one cluster in one backend: the rooms in it are compared with each other.
type setting struct {
	options
	backend string
	cluster cluster
	dir     string
	rooms   map[string]*room
}

// runAll measures every setting.
func runAll(ctx context.Context, o options) (results []result, err error) {
	err = rig.InFolder("packets", func(dir string) error {
		results, err = o.runIn(ctx, dir)
		return err
	})
	return results, err
}

func (o options) runIn(ctx context.Context, dir string) (results []result, err error) {
	for _, services := range o.services {
		for _, backend := range o.backends {
			s := setting{
				options: o, backend: backend, cluster: cluster{services, o.endpoints, o.families},
				dir: filepath.Join(dir, fmt.Sprintf("%s-%d", backend, services)), rooms: map[string]*room{},
			}
			some, err := s.run(ctx)
			results = append(results, some...)
			if err != nil {
				return results, err
			}
		}
	}
	return results, nil
}

func (s setting) run(ctx context.Context) (results []result, err error) {
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return nil, err
	}
	defer func() {
		for _, r := range s.rooms {
			err = errors.Join(err, r.close())
		}
	}()
	for _, v := range s.variants {
		if err := s.furnish(ctx, v); err != nil {
			return nil, err
		}
	}
	series := s.series()
	err = s.measure(ctx, series)
	for _, one := range series {
		results = append(results, s.results(one)...)
	}
	return results, err
}

// measure takes the samples of all rounds. When it is interrupted, those so far are kept.
func (s setting) measure(ctx context.Context, all []*series) error {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for round := range s.rounds {
		s.progress("round %d of %d", round+1, s.rounds)
		for _, one := range all {
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted in round %d of %d", round+1, s.rounds)
			}
			s.sampleEach(one)
		}
	}
	return nil
}

// furnish makes the room of a variant. One whose proxy needs too long is left out.
func (s setting) furnish(ctx context.Context, v variant) error {
	r, err := newRoom()
	if err != nil {
		return err
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	err = v.install(limited, r, s.backend, s.cluster, s.dir)
	if err != nil && errors.Is(limited.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
		s.progress("left out: %v", err)
		return r.close()
	}
	if err != nil {
		return errors.Join(err, r.close())
	}
	s.rooms[v.name] = r
	if s.rules != "" {
		name := fmt.Sprintf("%s-%d-%s.rules", s.backend, s.cluster.services, v.name)
		if err := r.writeRules(s.backend, filepath.Join(s.rules, name)); err != nil {
			return err
		}
	}
	s.progress("%s applied after %v", v.name, time.Since(began).Round(10*time.Millisecond))
	return nil
}

// series is one case with its samples by variant. A variant that failed once has no more samples.
type series struct {
	benchCase
	direction string
	family    service.Family
	targets   []target
	samples   map[string][]float64
	failed    map[string]error
}

func (s setting) series() (all []*series) {
	for _, f := range s.families {
		for _, direction := range s.directions {
			for _, b := range s.cases {
				all = append(all, &series{
					benchCase: b, direction: direction, family: f, targets: b.to(s.cluster, f),
					samples: map[string][]float64{}, failed: map[string]error{},
				})
			}
		}
	}
	return all
}

// takes reports whether a variant can do a case.
func (one *series) takes(v variant) bool { return v.isProxy() || one.bare }

// sampleEach takes one sample of each variant, in random order.
func (s setting) sampleEach(one *series) {
	for _, i := range rand.Perm(len(s.variants)) {
		v := s.variants[i]
		r := s.rooms[v.name]
		if r == nil || !one.takes(v) || one.failed[v.name] != nil {
			continue
		}
		take := func() (float64, error) {
			return s.sampling.take(r, one.direction, one.family, one.benchCase, one.targets)
		}
		took, err := take()
		if err != nil { // a busy machine may lose a packet; rules that are wrong are so again
			rig.Progress("%s, %s, %s, %s: taken again: %v", v.name, one.name, one.direction, one.family, err)
			took, err = take()
		}
		if err != nil {
			one.failed[v.name] = err
			continue
		}
		one.samples[v.name] = append(one.samples[v.name], took)
	}
}

// results returns the measurements of every variant that can do the case.
func (s setting) results(one *series) (all []result) {
	baseline := s.variants[0].name
	for _, v := range s.variants {
		if !one.takes(v) {
			continue
		}
		r := result{
			Backend: s.backend, Family: one.family.String(), Direction: one.direction,
			Services: s.cluster.services, Endpoints: s.cluster.endpoints,
			Case: one.name, Variant: v.name, Baseline: baseline,
		}
		switch {
		case s.rooms[v.name] == nil:
			r.Error = "not applied in time"
		case one.failed[v.name] != nil:
			r.Error = one.failed[v.name].Error()
		default:
			r.compare(one.samples[v.name], one.samples[baseline])
		}
		if v.isSluice() && baseline == kubeProxy {
			r.Goal = unslower
			if s.backend == nftables {
				r.Goal = one.goal
			}
			r.judge()
		}
		all = append(all, r)
	}
	return all
}

func (s setting) progress(format string, args ...any) {
	rig.Progress("%s, %d × %d: "+format, append([]any{s.backend, s.cluster.services, s.cluster.endpoints}, args...)...)
}
