// SPDX-License-Identifier: Apache-2.0

package balance

import (
	"context"
	"math"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/service"
)

// crowd is a worker with Services of five endpoints that use leastConnections, and that may judge endpoints.
type crowd struct {
	w    *worker
	now  time.Time
	n    uint32
	told []service.Key
}

func newCrowd() *crowd {
	c := &crowd{now: time.Unix(1_000_000, 0)}
	c.w = newWorker(New(Config{Observe: func(service.Key, *service.Observed) {}, Listen: func(Event) {},
		Partly: func(key service.Key) { c.told = append(c.told, key) }}))
	c.w.ticked = c.now
	return c
}

// add adds a Service that listens to connections of some endpoints.
func (c *crowd) add(name string, endpoints int, outliers, least bool) *tracked {
	s := newTracked(service.Key{Namespace: "demo", Name: name})
	c.w.need(s, outliers, least)
	if outliers {
		s.outliers = newOutliers(0)
	}
	_, present := addresses(endpoints)
	s.take(present, true, nil)
	s.complete = true
	c.w.services[s.key] = s
	return s
}

// happen announces that a connection with a number began, was answered or ended.
func (c *crowd) happen(s *tracked, n uint32, e byte, protocol service.Protocol, kind conntrack.EventKind, state string) {
	a := conntrack.TableEvent{Kind: kind, Key: s.key, At: c.now}
	a.State, a.Protocol, a.Answerer = state, protocol.Number(), endpointOf(e)
	a.From = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, byte(n >> 24), byte(n >> 16), byte(n >> 8)}), uint16(n)&0xff+1000)
	a.To = netip.MustParseAddrPort("172.30.0.1:80")
	c.w.handle(&a)
}

// open opens flows to an endpoint.
func (c *crowd) open(s *tracked, count int, e byte) {
	for range count {
		c.n++
		c.happen(s, c.n, e, service.UDP, conntrack.Began, "")
	}
}

// TestSample_KeepsProportions: with more open connections than are counted, a new endpoint gets about its missing
// share, the counted number is limited, and the Service is reported once. With few connections, all of them count
// again.
func TestSample_KeepsProportions(t *testing.T) {
	c := newCrowd()
	s := c.add("web", 4, false, true)
	const each = serviceMax / 2
	for range each {
		for e := range byte(4) {
			c.open(s, 1, e)
		}
	}
	old := c.n
	_, present := addresses(5)
	s.take(present, false, func(netip.AddrPort) time.Time { return c.now })
	for range 10 {
		s.step()
	}
	if got := s.endpoints[endpointOf(4)].percent; got != leastMax {
		t.Errorf("the empty endpoint has %.0f %%", got)
	}
	c.open(s, each, 4)
	for range 10 {
		s.step()
	}
	for at, e := range s.endpoints {
		if math.Abs(e.percent-100) > 25 {
			t.Errorf("%v has %.0f %%, and %d of %d connections that count", at, e.percent, e.open, s.counted)
		}
	}
	if s.counted > serviceMax || s.counted < serviceMax/4 || len(s.open) != s.counted || c.w.counted != s.counted {
		t.Errorf("%d of %d connections count, in all %d", s.counted, len(s.open), c.w.counted)
	}
	if len(c.told) != 1 || c.w.PartlyObserved() != 1 {
		t.Errorf("told %v, %d Services are partly observed", c.told, c.w.PartlyObserved())
	}
	for n := uint32(1); n <= old; n++ {
		c.happen(s, n, byte((n-1)%4), service.UDP, conntrack.Ended, "")
	}
	for n := old + 1; n <= c.n-each/8; n++ {
		c.happen(s, n, 4, service.UDP, conntrack.Ended, "")
	}
	c.w.whole()
	if s.thinned != 0 || s.complete || !c.w.stale || c.w.PartlyObserved() != 0 {
		t.Errorf("with few connections: thinned %d times, complete %t, %d partly observed", s.thinned, s.complete, c.w.PartlyObserved())
	}
}

// TestSample_FullNodeMakesRoom: on a full node, the Services with most connections make room for others.
func TestSample_FullNodeMakesRoom(t *testing.T) {
	c := newCrowd()
	for i := range connectionsMax/serviceMax + 2 {
		c.open(c.add(string(rune('a'+i)), 5, false, true), serviceMax, 0)
	}
	s := c.add("small", 5, false, true)
	c.open(s, 100, 1)
	if s.counted != 100 || c.w.counted > connectionsMax {
		t.Errorf("%d of 100 connections count, %d in all", s.counted, c.w.counted)
	}
}

// TestOutliers_ManyOpenConnections: an endpoint that does not answer is found regardless of the number of open
// connections and of forged clients without an answer.
func TestOutliers_ManyOpenConnections(t *testing.T) {
	for name, crowded := range map[string]func(c *crowd, s *tracked){
		"open connections": func(c *crowd, s *tracked) { c.open(s, 3*serviceMax, 0) },
		"forged clients": func(c *crowd, s *tracked) {
			for range 3 * serviceWaitingMax {
				if c.n++; c.n%100 == 0 {
					c.now = c.now.Add(look)
					c.w.tick(context.Background(), c.now)
				}
				c.happen(s, c.n, byte(c.n%5), service.TCP, conntrack.Began, "SYN_SENT")
			}
		},
		"forged clients of other Services": func(c *crowd, _ *tracked) {
			for i := range waitingMax/serviceWaitingMax + 1 {
				other := c.add(string(rune('a'+i)), 5, true, false)
				for range serviceWaitingMax {
					c.n++
					c.happen(other, c.n, byte(c.n%5), service.TCP, conntrack.Began, "SYN_SENT")
				}
				for range 10 {
					c.now = c.now.Add(look)
					c.w.tick(context.Background(), c.now)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd()
			s := c.add("web", 5, true, true)
			crowded(c, s)
			const clients = 0xffff0000
			for n := range uint32(3) {
				c.happen(s, clients+n<<8, 0, service.TCP, conntrack.Began, "SYN_SENT")
				c.happen(s, clients+n<<8, 0, service.TCP, conntrack.Changed, "SYN_RECV")
				c.happen(s, clients+n<<8+1, 1, service.TCP, conntrack.Began, "SYN_SENT")
			}
			for range 10 {
				c.now = c.now.Add(look)
				c.w.tick(context.Background(), c.now)
			}
			if got := s.outliers.accused(); len(got) != 1 || got[0] != endpointOf(1) {
				t.Errorf("accused are %v", got)
			}
		})
	}
}

// TestWorker_RareTableReads: the process reads the connection table for at most 2 % of the time, even if a Service
// keeps changing its annotation or announcements keep getting lost.
func TestWorker_RareTableReads(t *testing.T) {
	for name, event := range map[string]func(w *worker, s *tracked){
		"flips": func(w *worker, s *tracked) {
			w.need(s, false, false)
			w.attend(t.Context(), time.Now())
			w.need(s, false, true)
			w.attend(t.Context(), time.Now())
		},
		"losses": func(w *worker, _ *tracked) { w.hear(nil, true, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, spent := newCrowd(), time.Duration(0)
				s := c.add("web", 5, false, true)
				c.w.config.Feed = silentFeed(func(context.Context, service.Family, func(conntrack.Connection)) error {
					time.Sleep(time.Second)
					spent += time.Second
					return nil
				})
				c.w.attend(t.Context(), time.Now())
				began := time.Now()
				for time.Since(began) < time.Hour {
					event(c.w, s)
					for range 20 {
						time.Sleep(look)
						c.w.tick(t.Context(), time.Now())
					}
				}
				if part := float64(spent) / float64(time.Since(began)); part > 0.022 || part < 0.01 {
					t.Errorf("%.3f of the time is spent on readings", part)
				}
				c.w.leave(s)
				c.w.attend(t.Context(), time.Now())
				if c.w.heard != nil || c.w.restless() {
					t.Errorf("without a Service: listening %t", c.w.heard != nil)
				}
				time.Sleep(2 * time.Minute) // until the feed rests
			})
		})
	}
}

// TestWeights_UnknownCountsEqualShares: all endpoints have equal shares until the connections that were already open
// are counted.
func TestWeights_UnknownCountsEqualShares(t *testing.T) {
	c := newCrowd()
	s := c.add("web", 5, false, true)
	c.open(s, 500, 0)
	for range 10 {
		s.step()
	}
	if got := s.endpoints[endpointOf(0)].percent; got > 2*leastMin {
		t.Errorf("an endpoint with all connections has %.0f %%", got)
	}
	c.w.abandon(s)
	c.open(s, 500, 1)
	for range 10 {
		s.step()
	}
	for at, e := range s.endpoints {
		if e.percent != 100 {
			t.Errorf("%v has %.0f %%", at, e.percent)
		}
	}
}
