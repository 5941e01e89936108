// SPDX-License-Identifier: Apache-2.0

package balance

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"
)

const (
	// inRow is how many connections in a row an endpoint must fail; at least two clients must have made them.
	inRow = 3
	// evidenceAge is the maximum age of an answer of another endpoint to a client. Without such an answer, the client's
	// failures do not count: possibly no endpoint answers it.
	evidenceAge = time.Minute
	// pauseMin is how long a suspect gets no connection, unless Config.Pause is set. The pause doubles with each failed
	// trial, up to pauseMax, and is short again after forgiven.
	pauseMin, pauseMax, forgiven = 5 * time.Second, 5 * time.Minute, 10 * time.Minute
	// trialMax is how long the connection of a trial may take.
	trialMax = 5 * time.Second
	// refutedMax is how many failures of a client may be refuted within evidenceAge by a later answer of the endpoint.
	// Then further failures of that client do not count. redeeming is how many answers to the client cancel one refuted
	// failure, because some connections fail in any network.
	refutedMax, redeeming = 4, 50
	// failuresMax and clientsMax bound the recorded failures of an endpoint and clients of a Service.
	failuresMax, clientsMax = 16, 256
)

// outliers judges the endpoints of one Service by the outcome of new connections. It is pure: its owner passes in
// events and the time. Its functions report whether the set of suspects has changed, or which endpoints are suspects.
//
//	good ──three failures in a row──► suspect ──pause──► trial ──a connection begins──► trying
//	 ▲                                   ▲                                                │
//	 └───────────────answer──────────────┴──────────failure or no outcome────────────────┘
type outliers struct {
	endpoints map[netip.AddrPort]*suspicion
	// failing are the suspicions of endpoints that are not good, or have failures.
	failing map[netip.AddrPort]*suspicion
	clients map[netip.Addr]*witness
	// pause is the length of the first pause.
	pause time.Duration
}

// suspicion is the state of one endpoint.
type suspicion struct {
	state    suspicionState
	failures []failure
	// until ends the state suspect or trying. pause is the length of the last pause, and last its end.
	until, last time.Time
	pause       time.Duration
}

type suspicionState uint8

const (
	good suspicionState = iota
	suspect
	trial
	trying
)

// out reports whether the endpoint is to get no connections.
func (s *suspicion) out() bool { return s.state == suspect || s.state == trying }

type failure struct {
	client netip.Addr
	at     time.Time
}

// witness is a client: the last endpoints that answered it, the newest first, and the last one that did not.
type witness struct {
	answers [2]answer
	failed  answer
	// discredited is set if several endpoints failed it since the last answer.
	discredited bool
	// refuted are the endpoints of its last refuted failures, the oldest first. redeemed counts the answers since the
	// last of them was removed.
	refuted  []answer
	redeemed int
}

type answer struct {
	by netip.AddrPort
	at time.Time
}

func newOutliers(pause time.Duration) *outliers {
	return &outliers{pause: cmp.Or(pause, pauseMin), endpoints: map[netip.AddrPort]*suspicion{}, failing: map[netip.AddrPort]*suspicion{}, clients: map[netip.Addr]*witness{}}
}

// set takes the endpoints that the API lists. It forgets the state of all others, even if they return later.
func (o *outliers) set(present map[netip.AddrPort]bool) {
	gone := func(e netip.AddrPort, _ *suspicion) bool { return !present[e] }
	maps.DeleteFunc(o.endpoints, gone)
	maps.DeleteFunc(o.failing, gone)
	for e := range present {
		if o.endpoints[e] == nil {
			o.endpoints[e] = &suspicion{}
		}
	}
}

// began records that a connection to an endpoint began.
func (o *outliers) began(e netip.AddrPort, now time.Time) (changed bool) {
	s := o.endpoints[e]
	if s == nil || s.state != trial {
		return false
	}
	s.state, s.until = trying, now.Add(trialMax)
	return true
}

// answered records that an endpoint answered a client.
func (o *outliers) answered(client netip.Addr, e netip.AddrPort, now time.Time) (changed bool) {
	s := o.endpoints[e]
	if s == nil {
		return false
	}
	w := o.witness(client, now)
	if w.answers[0].by != e {
		w.answers[1] = w.answers[0]
	}
	w.answers[0], w.discredited = answer{e, now}, false
	w.redeem()
	changed = o.refute(e, s, now)
	s.failures = s.failures[:0]
	if s.state == trial || s.state == trying {
		s.state, s.last = good, now
		changed = true
	}
	if s.state == good {
		delete(o.failing, e)
	}
	// This may be the first evidence that the failures of another endpoint are not the client's fault.
	for other, s := range o.failing {
		if s.state == good && len(s.failures) >= inRow && o.convicts(other, s, now) {
			s.suspect(now, o.pause)
			changed = true
		}
	}
	return changed
}

// failed records that an endpoint refused a client, or did not answer it.
func (o *outliers) failed(client netip.Addr, e netip.AddrPort, now time.Time) (changed bool) {
	s := o.endpoints[e]
	if s == nil {
		return false
	}
	w := o.witness(client, now)
	if w.failed.by.IsValid() && w.failed.by != e && w.failed.at.After(w.answers[0].at) && !w.discredited {
		w.discredited = true
		changed = o.acquit(client, now)
	}
	w.failed = answer{e, now}
	switch {
	case s.state == trial || s.state == trying:
		changed = changed || !s.out()
		s.failures = nil
		s.suspect(now, o.pause)
		return changed
	case s.state != good:
		return changed
	}
	if len(s.failures) == failuresMax {
		s.failures = slices.Delete(s.failures, 0, 1)
	}
	s.failures = append(s.failures, failure{client, now})
	o.failing[e] = s
	if !o.convicts(e, s, now) {
		return changed
	}
	s.suspect(now, o.pause)
	return true
}

// refute counts the last failures of an endpoint, which answers now, against their clients. So clients that make
// failures on purpose, between other connections, use up their credibility.
func (o *outliers) refute(e netip.AddrPort, s *suspicion, now time.Time) (changed bool) {
	for _, f := range slices.Clone(s.failures) { // acquit deletes some
		w := o.clients[f.client]
		if w == nil || now.Sub(f.at) > evidenceAge {
			continue
		}
		if len(w.refuted) == refutedMax {
			w.refuted = slices.Delete(w.refuted, 0, 1)
		}
		w.refuted = append(w.refuted, answer{e, now})
		changed = o.acquit(f.client, now) || changed
	}
	return changed
}

// redeem counts an answer to the client.
func (w *witness) redeem() {
	if len(w.refuted) == 0 {
		return
	}
	if w.redeemed++; w.redeemed >= redeeming {
		w.refuted, w.redeemed = slices.Delete(w.refuted, 0, 1), 0
	}
}

// spent reports whether too many failures of the client were refuted for another one of an endpoint to count. If all of
// them are of one endpoint, that endpoint may be half broken, so failures of other endpoints still count.
func (w *witness) spent(e netip.AddrPort, now time.Time) bool {
	if len(w.refuted) < refutedMax || now.Sub(w.refuted[0].at) > evidenceAge {
		return false
	}
	one := w.refuted[0].by
	return one == e || slices.ContainsFunc(w.refuted, func(a answer) bool { return a.by != one })
}

// acquit removes the failures of a client that is no longer believed, and clears suspects that have too few others.
// Failures of clients that were forgotten still count.
func (o *outliers) acquit(client netip.Addr, now time.Time) (changed bool) {
	w, by := o.clients[client], func(f failure) bool { return f.client == client }
	for e, s := range o.failing {
		if !s.out() || !w.discredited && !w.spent(e, now) || !slices.ContainsFunc(s.failures, by) {
			continue
		}
		s.failures = slices.DeleteFunc(s.failures, by)
		if !suffice(s.failures) {
			s.state, s.failures = good, nil
			delete(o.failing, e)
			changed = true
		}
	}
	return changed
}

// suspect begins a pause.
func (s *suspicion) suspect(now time.Time, first time.Duration) {
	switch {
	case s.pause == 0 || !s.last.IsZero() && now.Sub(s.last) > forgiven:
		s.pause = first
	default:
		s.pause = min(2*s.pause, pauseMax)
	}
	s.state, s.until = suspect, now.Add(s.pause)
}

// convicts reports whether the failures of an endpoint are its own fault.
func (o *outliers) convicts(e netip.AddrPort, s *suspicion, now time.Time) bool {
	if len(s.failures) < inRow {
		return false
	}
	return suffice(slices.DeleteFunc(slices.Clone(s.failures), func(f failure) bool {
		return now.Sub(f.at) > evidenceAge || !o.clients[f.client].believed(e, now)
	}))
}

// suffice reports whether there are enough failures, of several clients.
func suffice(all []failure) bool {
	return len(all) >= inRow && slices.ContainsFunc(all, func(f failure) bool { return f.client != all[0].client })
}

// believed reports whether another endpoint answered the client lately, no two failed it since, and its credibility is
// not used up.
func (w *witness) believed(e netip.AddrPort, now time.Time) bool {
	return w != nil && !w.discredited && !w.spent(e, now) && slices.ContainsFunc(w.answers[:], func(a answer) bool {
		return a.by.IsValid() && a.by != e && now.Sub(a.at) <= evidenceAge
	})
}

// witness returns the record of a client. To make room, it forgets clients whose records are old, then those without an
// answer, and then any.
func (o *outliers) witness(client netip.Addr, now time.Time) *witness {
	w := o.clients[client]
	if w != nil {
		return w
	}
	if len(o.clients) >= clientsMax {
		maps.DeleteFunc(o.clients, func(_ netip.Addr, w *witness) bool {
			return now.Sub(w.answers[0].at) > evidenceAge && now.Sub(w.failed.at) > evidenceAge
		})
	}
	if len(o.clients) >= clientsMax {
		maps.DeleteFunc(o.clients, func(_ netip.Addr, w *witness) bool { return !w.answers[0].by.IsValid() })
	}
	for other := range o.clients {
		if len(o.clients) < clientsMax {
			break
		}
		delete(o.clients, other)
	}
	w = &witness{}
	o.clients[client] = w
	return w
}

// tick lets pauses and trials end.
func (o *outliers) tick(now time.Time) (changed bool) {
	for _, s := range o.failing {
		if !s.out() || now.Before(s.until) {
			continue
		}
		if s.state == suspect {
			s.state, s.last, s.failures = trial, now, nil
			changed = true
		} else {
			s.suspect(now, o.pause) // the trial had no outcome
		}
	}
	return changed
}

// calm reports whether all endpoints are good.
func (o *outliers) calm() bool { return len(o.accused()) == 0 }

// accused returns the suspects and the endpoints on trial.
func (o *outliers) accused() (all []netip.AddrPort) {
	for e, s := range o.failing {
		if s.state != good {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return all
}

// tries reports whether the connection of a trial is under way.
func (o *outliers) tries(e netip.AddrPort) bool {
	s := o.endpoints[e]
	return s != nil && s.state == trying
}

// forget drops all suspicions, since no more connections are seen.
func (o *outliers) forget() (changed bool) {
	for e, s := range o.endpoints {
		changed = changed || s.state != good
		o.endpoints[e] = &suspicion{}
	}
	clear(o.clients)
	clear(o.failing)
	return changed
}
