// SPDX-License-Identifier: Apache-2.0

package gone

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/service"
)

var (
	at   = netip.MustParseAddrPort("10.0.0.1:80")
	shop = service.Key{Namespace: "ns", Name: "web"}
)

// fake is a proxy with two domains, one for each family.
type fake struct {
	mu sync.Mutex
	// uses says who sends to an endpoint, fails what a search in IPv4 returns.
	uses     map[netip.AddrPort]service.Key
	fails    error
	batches  uint64
	searches int
	// takes is how long a search takes.
	takes time.Duration
}

func (f *fake) Status() []aggregator.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []aggregator.Status{{Domain: "IPv4", Batches: f.batches}, {Domain: "IPv6"}}
}

func (f *fake) Search(_ context.Context, domain string, sought []*ledger.Sought) error {
	time.Sleep(f.takes)
	f.mu.Lock()
	defer f.mu.Unlock()
	if domain == "IPv6" {
		return nil
	}
	f.searches++
	for _, s := range sought {
		if key, used := f.uses[s.At]; used {
			s.By = append(s.By, key)
		}
	}
	return f.fails
}

// set changes who sends to the endpoint.
func (f *fake) set(uses map[netip.AddrPort]service.Key, fails error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uses, f.fails, f.batches = uses, fails, f.batches+1
}

func (f *fake) searched() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.searches
}

// alone says that no other rules may send connections.
func alone() error { return nil }

// idle reports whether nothing waits and nothing runs.
func (w *Watch) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting) == 0 && !w.running
}

// TestAsk_WaitsUntilGone: Ask waits until the endpoint is gone.
func TestAsk_WaitsUntilGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{uses: map[netip.AddrPort]service.Key{at: shop}}
		w := New(f, alone)
		if a := w.Ask(t.Context(), at, 0); a.Gone() || !slices.Equal(a.By, []Sender{{shop, "IPv4"}}) {
			t.Errorf("in use: %+v", a)
		}
		began := time.Now()
		if a := w.Ask(t.Context(), at, 10*time.Second); a.Gone() || time.Since(began) != 10*time.Second {
			t.Errorf("in use for %v: %+v", time.Since(began), a)
		}
		time.AfterFunc(3*time.Second, func() { f.set(nil, nil) })
		began = time.Now()
		if a := w.Ask(t.Context(), at, 10*time.Second); !a.Gone() || time.Since(began) > 3*time.Second+2*look {
			t.Errorf("gone after %v: %+v", time.Since(began), a)
		}
		f.set(nil, aggregator.ErrUnread)
		if a := w.Ask(t.Context(), at, 0); a.Gone() || !errors.Is(a.Err, aggregator.ErrUnread) {
			t.Errorf("not known: %+v", a)
		}
		f.set(nil, aggregator.ErrEnded)
		began = time.Now()
		if a := w.Ask(t.Context(), at, time.Minute); a.Gone() || time.Since(began) > look {
			t.Errorf("of a proxy that ended, after %v: %+v", time.Since(began), a)
		}
		synctest.Wait()
		before := f.searched()
		time.Sleep(time.Hour)
		if f.searched() != before || !w.idle() {
			t.Error("without questions, it searches")
		}
	})
}

// TestAsk_SharedSearch: a thousand queries at a time cause two searches, and further queries are rejected.
func TestAsk_SharedSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{takes: time.Second}
		w := New(f, alone)
		var all sync.WaitGroup
		for n := range waitingMax {
			all.Go(func() {
				if a := w.Ask(t.Context(), netip.AddrPortFrom(at.Addr(), uint16(n)), 0); !a.Gone() {
					t.Errorf("%+v", a)
				}
			})
		}
		synctest.Wait()
		if a := w.Ask(t.Context(), at, time.Second); a.Gone() || !errors.Is(a.Err, errMany) {
			t.Errorf("one too many: %+v", a)
		}
		all.Wait()
		if f.searched() > 2 {
			t.Errorf("%d searches", f.searched())
		}
	})
}

// TestAsk_LeaverForgotten: a caller that leaves is forgotten, and a search that takes too long is an error.
func TestAsk_LeaverForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(&fake{takes: time.Minute}, alone)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if a := w.Ask(ctx, at, 0); a.Gone() || !errors.Is(a.Err, errSlow) {
			t.Errorf("%+v", a)
		}
		time.Sleep(10 * time.Minute)
		if !w.idle() {
			t.Error("it still searches")
		}
	})
}

// TestAsk_NamesFewSenders: an answer names a limited number of senders.
func TestAsk_NamesFewSenders(t *testing.T) {
	w := New(many{}, alone)
	if a := w.Ask(t.Context(), at, 0); a.Gone() || len(a.By) != ledger.SendersMax || !a.More {
		t.Errorf("%+v", a)
	}
}

// many is a proxy with many Services that send to each endpoint, in two domains.
type many struct{}

func (many) Status() []aggregator.Status {
	return []aggregator.Status{{Domain: "a"}, {Domain: "b"}}
}

func (many) Search(_ context.Context, _ string, sought []*ledger.Sought) error {
	for _, s := range sought {
		s.By = slices.Repeat([]service.Key{shop}, ledger.SendersMax-1)
	}
	return nil
}

// TestAsk_OthersUntilRemoved: an endpoint is not gone as long as rules of another proxy or mode, which are in no
// ledger, may remain.
func TestAsk_OthersUntilRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := New(&fake{}, func() error {
			if time.Since(began) < 3*time.Second {
				return errors.New("others remain")
			}
			return nil
		})
		if a := w.Ask(t.Context(), at, 0); a.Gone() || a.Err == nil || a.Err.Error() != "others remain" {
			t.Errorf("before: %+v", a)
		}
		a := w.Ask(t.Context(), at, time.Minute)
		if took := time.Since(began); !a.Gone() || took < 3*time.Second || took > 4*time.Second {
			t.Errorf("after %v: %+v", took, a)
		}
	})
}
