// SPDX-License-Identifier: Apache-2.0

package balance

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

func addresses(n int) (all []netip.AddrPort, present map[netip.AddrPort]bool) {
	present = map[netip.AddrPort]bool{}
	for i := range n {
		e := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 80)
		all = append(all, e)
		present[e] = true
	}
	return all, present
}

// TestWeights_Ramp: the share of a new endpoint grows from a tenth to the full share; the first endpoints have it at
// once.
func TestWeights_Ramp(t *testing.T) {
	all, present := addresses(3)
	s := &tracked{adaptation: service.Adaptation{SlowStart: time.Minute}, endpoints: map[netip.AddrPort]*endpoint{}}
	begin := time.Unix(1_000_000, 0)
	delete(present, all[2])
	s.take(present, true, func(netip.AddrPort) time.Time { t.Error("asked about the first ones"); return begin })
	if s.moving(begin) {
		t.Error("moving without a new endpoint")
	}
	present[all[2]] = true
	s.take(present, false, func(netip.AddrPort) time.Time { return begin })
	for second, want := range map[int]uint16{0: 10, 6: 19, 30: 55, 54: 91, 60: 0, 61: 0} {
		now := begin.Add(time.Duration(second) * time.Second)
		o := s.observed(now)
		if got, _ := o.Of(all[2]); got.Percent != want {
			t.Errorf("after %d s: %d %%, want %d", second, got.Percent, want)
		}
		if got, known := o.Of(all[0]); got.Percent != 0 || !known {
			t.Errorf("after %d s: another one has %d %%, known %t", second, got.Percent, known)
		}
		if !s.moving(now) {
			t.Errorf("after %d s: not moving", second)
		}
	}
	if s.moving(begin.Add(63 * time.Second)) {
		t.Error("moving after the end")
	}
}

// TestWeights_StepsTowardFewerConnections: shares move toward endpoints with fewer connections, by at most half in one
// step and within limits, and stop when the counts are equal.
func TestWeights_StepsTowardFewerConnections(t *testing.T) {
	all, present := addresses(4)
	s := &tracked{least: true, complete: true, endpoints: map[netip.AddrPort]*endpoint{}}
	s.take(present, true, nil)
	now := time.Unix(1_000_000, 0)
	if s.step(); s.observed(now) != nil {
		t.Fatal("equal counts have an effect")
	}
	s.endpoints[all[0]].open = 1000
	percent := 100.0
	for range 4 {
		s.step()
		got, _ := s.observed(now).Of(all[0])
		percent = max(percent/leastStep, leastMin)
		if math.Abs(float64(got.Percent)-percent) > 1 {
			t.Errorf("%d %%, want %.0f", got.Percent, percent)
		}
		if other, _ := s.observed(now).Of(all[1]); other.Percent > leastMax || other.Percent < 100 {
			t.Errorf("another endpoint has %d %%", other.Percent)
		}
	}
	for _, e := range s.endpoints {
		e.open = 1000
	}
	for range 10 {
		s.step()
	}
	if o := s.observed(now); o != nil {
		for _, e := range o.Endpoints {
			if math.Abs(float64(e.Percent)-100) > 16 {
				t.Errorf("at rest: %v", e)
			}
		}
	}
	before := s.observed(now)
	s.endpoints[all[1]].open = 1040 // noise
	if s.step(); !s.observed(now).Equal(before) {
		t.Error("noise is published")
	}
}

// TestWeights_ConnectionsBecomeEqual simulates clients that hold their connections: after one endpoint was empty, the
// counts become equal faster than at random.
func TestWeights_ConnectionsBecomeEqual(t *testing.T) {
	all, present := addresses(4)
	s := &tracked{least: true, complete: true, endpoints: map[netip.AddrPort]*endpoint{}}
	s.take(present, true, nil)
	for _, e := range all[1:] {
		s.endpoints[e].open = 300
	}
	for range 30 { // seconds, with 30 new connections each; one in thirty ends
		s.step()
		total := 0.0
		for _, e := range s.endpoints {
			total += e.least
		}
		for _, e := range s.endpoints {
			e.open += int(math.Round(30*e.least/total)) - e.open/30
		}
	}
	for i, e := range all {
		if open := s.endpoints[e].open; open < 180 {
			t.Errorf("endpoint %d has %d connections", i, open)
		}
	}
}
