// SPDX-License-Identifier: Apache-2.0

package balance

import (
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// leastMin and leastMax bound the percentage of an endpoint by its open connections, and leastStep its change in one
	// step, in either direction.
	leastMin, leastMax, leastStep = 25, 400, 1.5
	// leastNoise is how far a percentage must be from the published one to be published.
	leastNoise = 0.15
)

// tracked is one Service that adapts. Its owner is the watcher's goroutine.
type tracked struct {
	key        service.Key
	adaptation service.Adaptation
	least      bool
	endpoints  map[netip.AddrPort]*endpoint
	outliers   *outliers // nil unless asked for
	// open are the followed connections. counted is the number of those that are open and count, and waiting the number
	// of those that have no answer yet. At most silenced of the latter were judged.
	open                       map[conntrack.Tuple]*connection
	counted, waiting, silenced int
	// complete is set once earlier connections count, too. thinned is how often the sample that counts was halved.
	complete bool
	thinned  uint
	// published is what the actor last received, told are the suspects that were reported, and next is the earliest
	// time of the next change of weights.
	published *service.Observed
	told      []netip.AddrPort
	next      time.Time
}

func newTracked(key service.Key) *tracked {
	return &tracked{key: key, endpoints: map[netip.AddrPort]*endpoint{}, open: map[conntrack.Tuple]*connection{}}
}

// follows reports whether the connections of the Service matter.
func (t *tracked) follows() bool { return t.least || t.outliers != nil }

// endpoint is one that the API lists.
type endpoint struct {
	// since is when it was new; zero if it was there before the Service was tracked.
	since time.Time
	// open counts the connections of this node, or those in the sample.
	open int
	// percent follows from open; least is what was published of it.
	percent, least float64
}

// take compares the endpoints that the API lists with those known. at is when a new one became ready.
func (t *tracked) take(present map[netip.AddrPort]bool, first bool, at func(netip.AddrPort) time.Time) {
	for e := range t.endpoints {
		if !present[e] {
			delete(t.endpoints, e)
		}
	}
	for e := range present {
		if t.endpoints[e] != nil {
			continue
		}
		made := &endpoint{percent: 100, least: 100}
		if !first {
			made.since = at(e)
		}
		t.endpoints[e] = made
	}
	for _, c := range t.open { // an endpoint that comes back has connections
		if e := t.endpoints[c.at]; c.counts && e != nil && e != c.endpoint {
			c.endpoint = e
			e.open++
		}
	}
	if t.outliers != nil {
		t.outliers.set(present)
	}
}

// ramp returns the percentage of an endpoint by its age.
func (t *tracked) ramp(e *endpoint, now time.Time) float64 {
	length := t.adaptation.SlowStart
	if length == 0 || e.since.IsZero() || now.Sub(e.since) >= length {
		return 100
	}
	return service.NewPercent + (100-service.NewPercent)*max(0, float64(now.Sub(e.since))/float64(length))
}

// step moves the percentages toward endpoints with fewer open connections: by the square of the ratio, so that
// counts become equal rather than half as different. While counts are not complete, shares become equal.
func (t *tracked) step() {
	if !t.least || len(t.endpoints) == 0 {
		return
	}
	sum := 0
	for _, e := range t.endpoints {
		sum += e.open
	}
	mean := float64(sum) / float64(len(t.endpoints))
	far := false
	for _, e := range t.endpoints {
		ratio := (mean + 1) / (float64(e.open) + 1)
		want := min(max(100*ratio*ratio, leastMin), leastMax)
		if !t.complete {
			want = 100
		}
		e.percent = min(max(want, e.percent/leastStep), e.percent*leastStep)
		far = far || math.Abs(e.percent-e.least) > leastNoise*e.least
	}
	if far {
		for _, e := range t.endpoints {
			e.least = e.percent
		}
	}
}

// observed returns the observations for the actor; nil for none.
func (t *tracked) observed(now time.Time) *service.Observed {
	o := &service.Observed{}
	for at, e := range t.endpoints {
		made := service.ObservedEndpoint{AddrPort: at}
		if percent := t.ramp(e, now) * e.least / 100; math.Round(percent) != 100 {
			made.Percent = uint16(max(math.Round(percent), 1))
		}
		if t.outliers != nil {
			made.Suspect = t.outliers.endpoints[at].out()
		}
		if made.Percent != 0 || made.Suspect || t.adaptation.SlowStart > 0 {
			o.Endpoints = append(o.Endpoints, made)
		}
	}
	if len(o.Endpoints) == 0 {
		return nil
	}
	slices.SortFunc(o.Endpoints, func(a, b service.ObservedEndpoint) int { return a.AddrPort.Compare(b.AddrPort) })
	return o
}

// moving reports whether the weights change with time.
func (t *tracked) moving(now time.Time) bool {
	if t.least {
		return true
	}
	for _, e := range t.endpoints {
		// Once more after the end of the ramp.
		if length := t.adaptation.SlowStart; length > 0 && !e.since.IsZero() && now.Sub(e.since) < length+2*weightPause {
			return true
		}
	}
	return false
}
