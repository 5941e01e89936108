// SPDX-License-Identifier: Apache-2.0

package balance

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// mixture makes connections of several clients as a node does: suspects get none, unless more than half of the endpoints
// are suspects, and silence is judged after the patience.
type mixture struct {
	*world
	r       *rand.Rand
	unheard []unheard
	// ejections counts the suspicions, and failed the connections that failed, but not on purpose.
	ejections, failed int
	// dead is an endpoint that answers none, and flaky one that answers every second connection.
	dead, flaky netip.AddrPort
	// loss is the share of lost packets.
	loss float64
}

// unheard is a connection without an answer that is not judged yet.
type unheard struct {
	client netip.Addr
	e      netip.AddrPort
	at     time.Time
}

func newMixture(t *testing.T, endpoints, seed int) *mixture {
	return &mixture{world: newWorld(t, endpoints), r: rand.New(rand.NewPCG(uint64(seed), 2))}
}

func (m *mixture) pass(d time.Duration) {
	m.now = m.now.Add(d)
	for len(m.unheard) > 0 && m.now.Sub(m.unheard[0].at) >= patience {
		m.count(func() { m.o.failed(m.unheard[0].client, m.unheard[0].e, m.now) })
		m.unheard = m.unheard[1:]
	}
	m.o.tick(m.now)
}

func (m *mixture) count(happen func()) {
	before := m.suspects()
	happen()
	for _, e := range m.suspects() {
		if !slices.Contains(before, e) {
			m.ejections++
		}
	}
}

// connection makes one connection of a client to a random endpoint. If it fails on purpose, no endpoint answers.
func (m *mixture) connection(n int, purpose bool) {
	among := slices.DeleteFunc(slices.Clone(m.all), func(e netip.AddrPort) bool { return m.o.endpoints[e].out() })
	if 2*len(among) < len(m.all) {
		among = m.all
	}
	e := among[m.r.IntN(len(among))]
	m.o.began(e, m.now)
	fails := e == m.dead || e == m.flaky && m.r.IntN(2) == 0 || m.r.Float64() < m.loss
	if !purpose && !fails {
		m.count(func() { m.o.answered(client(n), e, m.now) })
		return
	}
	m.unheard = append(m.unheard, unheard{client(n), e, m.now})
	if !purpose {
		m.failed++
	}
}

// TestOutliers_DeliberateFailures: clients that fail on purpose make few suspects. Two clients alternate ordinary
// connections with packets that no endpoint answers, as with the TCP MD5 option, and a third one makes two connections
// per second. In three minutes, they caused 19 suspects when every failure counted.
func TestOutliers_DeliberateFailures(t *testing.T) {
	const seeds, attempt = 10, 162500 * time.Microsecond
	ejections := 0
	for seed := range seeds {
		m := newMixture(t, 4, seed)
		for n := range int(3 * time.Minute / attempt) {
			m.connection(n%2, false)
			m.connection(n%2, true)
			if n%3 == 0 {
				m.connection(5, false)
			}
			m.pass(attempt)
		}
		ejections += m.ejections
	}
	t.Logf("%d ejections", ejections)
	if ejections > 5*seeds {
		t.Errorf("%d ejections of healthy endpoints in %d runs, want at most 5 in each", ejections, seeds)
	}
}

// TestOutliers_DeadAmongOrdinaryFailures: clients remain credible after ordinary failures: a dead endpoint is found
// among others that lose packets, or while another one answers only every second connection.
func TestOutliers_DeadAmongOrdinaryFailures(t *testing.T) {
	for name, set := range map[string]func(*mixture){
		"half broken": func(m *mixture) { m.flaky = m.all[1] },
		"losses":      func(m *mixture) { m.loss = 0.005 },
	} {
		for seed := range 5 {
			m := newMixture(t, 10, seed)
			set(m)
			play := func(d time.Duration) (failed int) { // five clients, 500 connections per second
				before := m.failed
				for range int(d / (2 * time.Millisecond)) {
					m.connection(m.r.IntN(5), false)
					m.pass(2 * time.Millisecond)
				}
				return m.failed - before
			}
			play(30 * time.Second)
			m.dead = m.all[0]
			play(5 * time.Second)
			if failed := play(5 * time.Second); failed > 50 { // 250, if it gets its share
				t.Errorf("%s: %d of 2,500 connections failed 5 s after an endpoint died", name, failed)
			}
		}
	}
}
