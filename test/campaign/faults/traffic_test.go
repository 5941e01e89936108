// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// traffic keeps the client talking: new connections to every target one after the other, lines on
// one established connection to each TCP target, and one more of those that is silent until the
// end. A silent connection sends no packets, so it survives every fault, even the deletion of the
// rules that translate it.
type traffic struct {
	load    *netnstest.Load
	targets []target
	silent  map[target]*netnstest.Session

	mu     sync.Mutex
	counts map[target]int
	failed []netnstest.Exchange
	slow   netnstest.Slow[string]
	// seen is when the last new connection that a pod answered was begun.
	seen map[pod]time.Time

	// outages are what faults are known to have destroyed. Only the test uses them.
	outages []*outage
}

// pod is a pod as the clients of one family see it.
type pod struct {
	family service.Family
	name   string
}

// startTraffic begins with all targets. Each has to answer at first.
func startTraffic(t *testing.T, client *netns.Namespace) *traffic {
	t.Helper()
	tr := &traffic{targets: allTargets(), silent: map[target]*netnstest.Session{}, counts: map[target]int{}, seen: map[pod]time.Time{}}
	config := netnstest.LoadConfig{
		Client: client, Pause: 12 * time.Millisecond, TalkPause: 20 * time.Millisecond, Patience: patience, Note: tr.note,
	}
	for _, to := range tr.targets {
		config.Targets = append(config.Targets, netnstest.Target{Network: to.protocol, Addr: to.addr()})
		if to.protocol == "tcp" {
			// Before the load starts: of two first connections at once, the kernel sees neither
			// while it decides about the other, and affinity may send them to two pods.
			session, err := netnstest.Connect(t.Context(), client, to.addr())
			if err != nil {
				t.Fatalf("hold a connection to %v: %v", to, err)
			}
			t.Cleanup(func() { check(t, session.Close()) })
			tr.silent[to] = session
		}
	}
	var err error
	tr.load, err = netnstest.StartLoad(context.Background(), config)
	check(t, err)
	return tr
}

// patience bounds one exchange. It is longer than it takes to send a lost SYN again three times, on a
// machine that does many other things. What is that slow with one Service alone fails nevertheless.
const patience = 15 * time.Second

// enough is how many exchanges with a target prove something.
const enough = 10

func (tr *traffic) note(e netnstest.Exchange) {
	to := tr.targets[e.Target]
	if e.Err == nil && !strings.HasPrefix(e.Answer.Backend, to.service.name+"-") {
		e.Err = fmt.Errorf("%s answered, a pod of another Service", e.Answer.Backend)
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.counts[to]++
	if e.Err == nil {
		tr.slow.Note(to.service.name, e)
	}
	switch {
	case e.Err != nil:
		tr.failed = append(tr.failed, e)
	case !e.Session:
		tr.seen[pod{to.family, e.Answer.Backend}] = e.Began
	}
}

// allow adds an outage. end looks at it.
func (tr *traffic) allow(o *outage) { tr.outages = append(tr.outages, o) }

// loseAnswers begins an outage of a change of endpoints: the flows over UDP to an endpoint that leaves are deleted, and with
// them answers that are on their way. They may be for a moment after the change has landed, when the returned function is
// to be called.
func (tr *traffic) loseAnswers(of liveService) (landed func()) {
	o := &outage{
		What: "answers of endpoints that leave " + of.name, From: time.Now(),
		Hits: func(to target, _ netnstest.Exchange) bool { return to.service == of && to.protocol == "udp" },
	}
	tr.allow(o)
	return func() { o.To = time.Now().Add(2 * time.Second) }
}

// lastAnswer returns when the last connection that a pod answered was begun, zero if it never has.
func (tr *traffic) lastAnswer(of pod) time.Time {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.seen[of]
}

// awaitPod waits until a pod has answered a connection that was begun after a moment, and returns
// when that was.
func (tr *traffic) awaitPod(t *testing.T, of pod, after time.Time) time.Time {
	t.Helper()
	var at time.Time
	testenv.Eventually(t, fmt.Sprintf("%s answers over %s", of.name, of.family), func() bool {
		at = tr.lastAnswer(of)
		return at.After(after)
	})
	return at
}

// awaitAll waits until there were n more exchanges with every target.
func (tr *traffic) awaitAll(t *testing.T, n int) {
	t.Helper()
	tr.mu.Lock()
	before := maps.Clone(tr.counts)
	tr.mu.Unlock()
	testenv.Eventually(t, fmt.Sprintf("%d more exchanges with each target", n), func() bool {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		return !slices.ContainsFunc(tr.targets, func(to target) bool { return tr.counts[to] < before[to]+n })
	})
}

// end stops the traffic, lets the silent connections speak, and fails for every exchange that
// failed outside of an outage. On a busy machine, it first waits for as many exchanges as prove something.
func (tr *traffic) end(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("%d exchanges with each target", enough), func() bool {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		return !slices.ContainsFunc(tr.targets, func(to target) bool { return tr.counts[to] < enough })
	})
	tr.load.Stop()
	for to, session := range tr.silent {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if err := session.Echo(ctx, "still there"); err != nil {
			t.Errorf("%v: a connection that was silent during the fault is lost: %v", to, err)
		}
		cancel()
	}
	lost := map[string]int{}
	for _, e := range tr.failed {
		to := tr.targets[e.Target]
		if i := slices.IndexFunc(tr.outages, func(o *outage) bool { return o.Covers(to, e) }); i >= 0 {
			lost[tr.outages[i].What]++
		} else {
			t.Errorf("%v (established: %t) failed from %s to %s: %v",
				to, e.Session, e.Began.Format("05.000"), e.Ended.Format("05.000"), e.Err)
		}
	}
	for _, e := range tr.slow.Alone() {
		if !slices.ContainsFunc(tr.outages, func(o *outage) bool { return o.Covers(tr.targets[e.Target], e.Exchange) }) {
			t.Errorf("%v (established: %t) from %s", e, e.Session, e.Began.Format("05.000"))
		}
	}
	total := 0
	for _, to := range tr.targets {
		total += tr.counts[to]
	}
	t.Logf("%d exchanges with %d targets; destroyed by faults: %v", total, len(tr.counts), lost)
}

// outage is what a fault destroys.
type outage = netnstest.Outage[target]
