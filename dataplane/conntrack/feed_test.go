// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// announcements are those of a test, which counts how often they are opened and how many are open.
type announcements struct {
	opened, open int
	each         func(*TableEvent)
	lost         func()
	end          chan error
}

func (a *announcements) Run(each func(*TableEvent), lost func()) error {
	a.each, a.lost = each, lost
	return <-a.end
}

func (a *announcements) Close() error {
	a.open--
	close(a.end)
	return nil
}

// begin announces connections to the Service with a port.
func (a *announcements) begin(port uint16, count int) {
	e := &TableEvent{Kind: Began, Identity: Description{1}}
	e.Protocol, e.From, e.To = 6, netip.MustParseAddrPort("10.9.0.1:4000"), netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port)
	for range count {
		a.each(e)
	}
}

func serviceAt(port uint16) service.Key {
	return service.Key{Namespace: "ns", Name: string(rune(port))}
}

// testFeed has Services at the ports below 100.
func testFeed() (*Feed, *announcements) {
	a := &announcements{}
	return &Feed{
		Owner: func(_ service.Family, f service.Frontend) (service.Key, bool) { return serviceAt(f.Port), f.Port < 100 },
		Open: func() (Announcer, error) {
			a.opened, a.open, a.end = a.opened+1, a.open+1, make(chan error, 1)
			return a, nil
		},
		Read: func(context.Context, service.Family, func(Connection)) error { time.Sleep(time.Second); return nil },
	}, a
}

func subscribe(t *testing.T, f *Feed, ports ...uint16) *Subscription {
	t.Helper()
	wanted := map[service.Key]bool{}
	for _, p := range ports {
		wanted[serviceAt(p)] = true
	}
	s, err := f.Subscribe(func(key service.Key) bool { return wanted[key] })
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return s
}

func unsubscribe(t *testing.T, all ...*Subscription) {
	t.Helper()
	for _, s := range all {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// expect takes what waits for a subscriber.
func (s *Subscription) expect(t *testing.T, when string, count int, lost bool, failure error) {
	t.Helper()
	select {
	case <-s.C:
	default:
		if count > 0 || lost || failure != nil {
			t.Errorf("%s: the subscriber is not woken", when)
		}
	}
	events, missed, err := s.Take()
	if len(events) != count || missed != lost || !errors.Is(err, failure) {
		t.Errorf("%s: %d events, lost %t, %v; want %d, %t, %v", when, len(events), missed, err, count, lost, failure)
	}
}

// TestFeed: one socket serves all subscribers. Each subscriber receives the events of its Services and learns of lost
// ones, and a slow one loses only its own events. A minute after the last subscriber left, the socket is closed.
func TestFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, kernel := testFeed()
		if kernel.opened != 0 {
			t.Error("it listens without a subscriber")
		}
		one, two := subscribe(t, f, 80, 81), subscribe(t, f, 81, 82)
		for _, port := range []uint16{80, 81, 82, 83, 100} {
			kernel.begin(port, 1)
		}
		other := &TableEvent{Kind: Changed, Connection: Connection{Protocol: 6, To: netip.MustParseAddrPort("10.0.0.1:81"), State: "ESTABLISHED"}}
		kernel.each(other)
		one.expect(t, "events", 2, false, nil)
		two.expect(t, "events", 2, false, nil)

		kernel.begin(81, waitingMax)
		two.expect(t, "as many as may wait", waitingMax, false, nil)
		kernel.begin(81, 10)
		one.expect(t, "slow", waitingMax, true, nil)
		two.expect(t, "next to a slow one", 10, false, nil)

		kernel.lost()
		one.expect(t, "overrun", 0, true, nil)
		two.expect(t, "overrun", 0, true, nil)

		unsubscribe(t, one)
		kernel.begin(81, 1)
		two.expect(t, "alone", 1, false, nil)
		unsubscribe(t, two)
		time.Sleep(linger - 1)
		one = subscribe(t, f, 80)
		time.Sleep(2 * linger)
		synctest.Wait()
		if kernel.opened != 1 || kernel.open != 1 {
			t.Errorf("opened %d times, %d are open, with a subscriber", kernel.opened, kernel.open)
		}
		unsubscribe(t, one)
		time.Sleep(linger + 1)
		synctest.Wait()
		if kernel.opened != 1 || kernel.open != 0 {
			t.Errorf("opened %d times, %d are open, a minute later", kernel.opened, kernel.open)
		}
	})
}

// TestFeed_Failure: when a feed fails, each subscriber receives the error, and the next subscriber opens the socket
// again.
func TestFeed_Failure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, kernel := testFeed()
		one, two := subscribe(t, f, 80), subscribe(t, f, 81)
		failure := errors.New("bad descriptor")
		kernel.begin(80, 1)
		kernel.end <- failure
		synctest.Wait()
		one.expect(t, "failed", 1, false, failure)
		two.expect(t, "failed", 0, false, failure)
		unsubscribe(t, one)
		again := subscribe(t, f, 80)
		kernel.begin(80, 1)
		again.expect(t, "again", 1, false, nil)
		unsubscribe(t, two, again)
		f.Rest()
		synctest.Wait()
		if kernel.opened != 2 || kernel.open != 0 {
			t.Errorf("opened %d times, %d are open", kernel.opened, kernel.open)
		}
	})
}

// TestFeed_ListsSeldom: a feed spends at most 2 % of the time on readings of the connection table, for any number of
// requests.
func TestFeed_ListsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := testFeed()
		began, complete := time.Now(), 0
		for time.Since(began) < time.Hour {
			done, err := f.List(t.Context(), func(service.Key, *Connection) {})
			if err != nil {
				t.Fatal(err)
			}
			if done {
				complete++
			}
			time.Sleep(100 * time.Millisecond)
		}
		if spent := float64(complete) * 2 / 3600; spent > 0.0201 || spent < 0.019 {
			t.Errorf("%.4f of the time is spent on %d readings", spent, complete)
		}
	})
}
