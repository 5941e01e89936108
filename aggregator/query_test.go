// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/service"
)

// TestWaits_OldestFirst: first returns the Services that have waited longest, the oldest first, up to a limit.
func TestWaits_OldestFirst(t *testing.T) {
	w := newWaits()
	begin := time.Unix(1000, 0)
	for i := range 10 {
		w.begin(service.Key{Namespace: "ns", Name: fmt.Sprint(i)}, begin.Add(time.Duration(i)))
	}
	w.end(service.Key{Namespace: "ns", Name: "0"})
	got := w.first(3)
	if len(got) != 3 || got[0].Name != "1" || got[2].Name != "3" {
		t.Errorf("%v", got)
	}
	if got := w.first(100); len(got) != 9 {
		t.Errorf("%d keys", len(got))
	}
}

func BenchmarkWaitsFirst(b *testing.B) {
	w := newWaits()
	for i := range 10_000 {
		w.begin(service.Key{Namespace: "ns", Name: fmt.Sprint(i)}, time.Unix(int64(i), 0))
	}
	for b.Loop() {
		w.first(4096)
	}
}

// sends is a naming in which bodies are endpoints.
type sends struct{ addresses }

func (sends) Sends(o *dataplane.Object, each func(netip.AddrPort)) {
	if at, err := netip.ParseAddrPort(o.Body); err == nil {
		each(at)
	}
}

// TestQuery_CallersLeave: a search works and cancels cleanly when callers leave, and returns ErrEnded after
// the aggregator ended.
func TestQuery_CallersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{objects: map[dataplane.ID]string{}}
		a, err := New(Config{Domain: "d", Writer: contract(m), Naming: sends{}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		for i := range 10 * searchPortion {
			f := fragment(fmt.Sprint("s", i), nil)
			f.Objects = []dataplane.Object{{ID: dataplane.ID{Container: "c", Name: fmt.Sprint("s", i)}, Body: fmt.Sprintf("10.0.0.1:%d", 1+i)}}
			a.Submit(f)
		}
		a.Prime(nil)
		time.Sleep(time.Minute)
		sought := &ledger.Sought{At: netip.MustParseAddrPort("10.0.0.1:77")}
		if err := a.Search(t.Context(), []*ledger.Sought{sought}); err != nil || len(sought.By) != 1 {
			t.Errorf("%+v, %v", sought, err)
		}
		asking, leave := context.WithCancel(t.Context())
		leave()
		for range 20 { // before the search begins, or in one of its pauses
			if err := a.Search(asking, []*ledger.Sought{sought}); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("of one that left: %v", err)
			}
		}
		cancel()
		<-ended
		if err := a.Search(t.Context(), []*ledger.Sought{sought}); !errors.Is(err, ErrEnded) {
			t.Errorf("after the end: %v", err)
		}
	})
}
