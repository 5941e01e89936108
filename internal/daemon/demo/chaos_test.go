// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/supervisor"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestChaos_StrikesOnlyVictimOnce: an armed fault affects only its victim, and only once.
func TestChaos_StrikesOnlyVictimOnce(t *testing.T) {
	c := newChaos()
	if got := c.next(echo); got != behave {
		t.Errorf("unarmed: %v", got)
	}
	c.arm(echo, panics)
	if got := c.next(service.Key{Namespace: "demo", Name: "dns"}); got != behave {
		t.Errorf("somebody else: %v", got)
	}
	if got := c.next(echo); got != panics {
		t.Errorf("the victim: %v", got)
	}
	if got := c.next(echo); got != behave {
		t.Errorf("the victim again: %v", got)
	}
}

func TestChaos_Panics(t *testing.T) {
	c := newChaos()
	c.arm(echo, panics)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	c.intercept(t.Context(), echo, nil)
}

// TestChaos_HangsUntilEnd: a hanging fault lasts until the end of the demo.
func TestChaos_HangsUntilEnd(t *testing.T) {
	c := newChaos()
	c.arm(echo, hangs)
	returned := make(chan struct{})
	go func() {
		c.intercept(t.Context(), echo, nil)
		close(returned)
	}()
	select {
	case <-returned:
		t.Error("did not hang")
	case <-time.After(20 * time.Millisecond):
	}
	c.end()
	<-returned
}

var _ observe.Listener = (*recorder)(nil)

// appliedAt tells a recorder that a domain has applied demo/echo.
func appliedAt(w *recorder, domain string, at time.Time) {
	w.Aggregator(aggregator.Applied{Domain: domain, At: at, Contribution: dataplane.Contribution{Key: echo}})
}

func TestRecorder_Await(t *testing.T) {
	w := newRecorder()
	go w.Supervisor(supervisor.Event[service.Key]{Child: service.Key{Namespace: "demo", Name: "echo"}, What: supervisor.Failed{}})
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	if err := w.await(ctx, "a failure", func() bool { return len(w.failed) == 1 }); err != nil {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := w.await(short, "another", func() bool { return len(w.failed) == 2 })
	if err == nil || err.Error() != "timed out waiting for: another" {
		t.Errorf("got %v", err)
	}
}

// TestRecorder_AppliedSince: a change counts as applied when all domains have applied it since the given time.
func TestRecorder_AppliedSince(t *testing.T) {
	w, began := newRecorder(), time.Now()
	appliedAt(w, "a", began.Add(-time.Second))
	appliedAt(w, "b", began.Add(time.Second))
	if _, ok := w.appliedSince(echo, began, 2); ok {
		t.Error("one domain of two counts as both")
	}
	appliedAt(w, "a", began.Add(2*time.Second))
	if last, ok := w.appliedSince(echo, began, 2); !ok || !last.At.Equal(began.Add(2*time.Second)) {
		t.Errorf("got %v, %v", last.At, ok)
	}
	if _, ok := w.appliedSince(service.Key{Namespace: "demo", Name: "dns"}, began, 1); ok {
		t.Error("what was never applied counts")
	}
}

func TestRecorder_Counts(t *testing.T) {
	w := newRecorder()
	w.Supervisor(supervisor.Event[service.Key]{Child: service.Key{Namespace: "demo", Name: "echo"}, What: supervisor.Started{}})
	w.Supervisor(supervisor.Event[service.Key]{Child: service.Key{Namespace: "demo", Name: "echo"}, What: supervisor.Started{Again: true}})
	w.Supervisor(supervisor.Event[service.Key]{Child: service.Key{Namespace: "demo", Name: "echo"}, What: supervisor.Stuck{}})
	w.Aggregator(aggregator.BatchWritten{Receipt: dataplane.Receipt{Written: dataplane.Written{Objects: 3}}})
	w.Aggregator(aggregator.BatchWritten{Receipt: dataplane.Receipt{Written: dataplane.Written{Objects: 4}}})
	if w.restarts != 1 || len(w.stuck) != 1 || len(w.failed) != 0 || w.batches != 2 || w.objects != 7 {
		t.Errorf("got %d restarts, %d stuck, %d failed, %d batches, %d objects", w.restarts, len(w.stuck), len(w.failed), w.batches, w.objects)
	}
}
