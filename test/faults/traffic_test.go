package faults

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
)

// exchange is one question and its answer: a connection of its own, or a line on
// an established one.
type exchange struct {
	target  target
	session bool
	began   time.Time
	ended   time.Time
	backend string
	err     error
}

// traffic keeps the client talking: new connections to every target one after the
// other, lines on one established connection to each TCP target, and one more of
// those that is silent until the end.
type traffic struct {
	client *netns.Namespace
	stop   context.CancelFunc
	done   sync.WaitGroup
	silent []*held

	mu     sync.Mutex
	counts map[target]int
	failed []exchange
	seen   map[pod]time.Time // when the last new connection was begun that a pod has answered

	// outages are what faults are known to have destroyed; the test's own.
	outages []*outage
}

// pod is a pod as the clients of one family see it.
type pod struct {
	family service.Family
	name   string
}

// held is an established connection.
type held struct {
	target  target
	session *netns.Session
}

// The pauses between two connections to one target, and two lines.
const (
	connectPause = 12 * time.Millisecond
	talkPause    = 20 * time.Millisecond
)

// startTraffic begins with all targets; all of them have to answer at first.
func startTraffic(t *testing.T, client *netns.Namespace) *traffic {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	tr := &traffic{client: client, stop: stop, counts: map[target]int{}, seen: map[pod]time.Time{}}
	for _, to := range allTargets() {
		if to.protocol == "tcp" {
			// One after the other: two first connections at once are two strangers to the
			// kernel, and affinity may send them to two pods.
			talking, silent := tr.hold(t, to), tr.hold(t, to)
			tr.silent = append(tr.silent, silent)
			tr.done.Go(func() { tr.talk(ctx, talking) })
		}
		tr.done.Go(func() { tr.connect(ctx, to) })
	}
	return tr
}

func (tr *traffic) hold(t *testing.T, to target) *held {
	t.Helper()
	session, err := tr.client.Connect(t.Context(), to.addr())
	if err != nil {
		t.Fatalf("hold a connection to %v: %v", to, err)
	}
	t.Cleanup(func() { check(t, session.Close()) })
	return &held{to, session}
}

// connect makes new connections until the context ends. Over UDP it does not wait
// for the answer, which never comes if a fault has destroyed it: nobody sends
// again.
func (tr *traffic) connect(ctx context.Context, to target) {
	for ctx.Err() == nil {
		if to.protocol == "udp" {
			tr.done.Go(func() { tr.once(to) })
		} else {
			tr.once(to)
		}
		time.Sleep(connectPause)
	}
}

// patience bounds one exchange. It is longer than it takes to send a lost SYN
// again twice, on a machine that does many other things.
var patience = slowly(4 * time.Second)

// slowly stretches a bound by the factor in SLUICE_FAULTS_SLOW, which hack/test-ipvs sets
// where the processor is emulated. What is counted stays: connections lost, receipts wrong.
func slowly(bound time.Duration) time.Duration {
	factor, err := strconv.Atoi(cmp.Or(os.Getenv("SLUICE_FAULTS_SLOW"), "1"))
	if err != nil {
		panic("SLUICE_FAULTS_SLOW: " + err.Error())
	}
	return time.Duration(factor) * bound
}

// once makes a connection. It is not bound to the end of the test: stopping is no
// failure.
func (tr *traffic) once(to target) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	e := exchange{target: to, began: time.Now()}
	answer, err := tr.client.Ask(ctx, to.protocol, to.addr())
	e.ended, e.backend, e.err = time.Now(), answer.Backend, err
	if err == nil && !strings.HasPrefix(answer.Backend, to.service.name+"-") {
		e.err = fmt.Errorf("%s answered, a pod of another Service", answer.Backend)
	}
	tr.note(e)
}

// talk says lines on an established connection until the context ends, or the
// connection does.
func (tr *traffic) talk(ctx context.Context, h *held) {
	for n := 0; ctx.Err() == nil; n++ {
		if !tr.say(h, fmt.Sprint("line ", n)) {
			return
		}
		time.Sleep(talkPause)
	}
}

func (tr *traffic) say(h *held, line string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	e := exchange{target: h.target, session: true, began: time.Now(), backend: h.session.Answer().Backend}
	e.err = h.session.Echo(ctx, line)
	e.ended = time.Now()
	tr.note(e)
	return e.err == nil
}

func (tr *traffic) note(e exchange) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.counts[e.target]++
	switch {
	case e.err != nil:
		tr.failed = append(tr.failed, e)
	case !e.session:
		tr.seen[pod{e.target.family, e.backend}] = e.began
	}
}

// excuse adds an outage; it is used when the traffic ends.
func (tr *traffic) excuse(o *outage) { tr.outages = append(tr.outages, o) }

// lastAnswer gives when the last connection was begun that a pod has answered, zero
// if it never has.
func (tr *traffic) lastAnswer(of pod) time.Time {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.seen[of]
}

// awaitPod waits until a pod has answered a connection that was begun after a
// moment, and gives its beginning.
func (tr *traffic) awaitPod(t *testing.T, of pod, after time.Time) time.Time {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		if at := tr.lastAnswer(of); at.After(after) {
			return at
		}
		if time.Since(began) > patience {
			t.Fatalf("%s has not answered over %s", of.name, of.family)
		}
	}
}

// awaitAll waits until every target was talked to n times more.
func (tr *traffic) awaitAll(t *testing.T, n int) {
	t.Helper()
	tr.mu.Lock()
	before := make(map[target]int, len(tr.counts))
	for to, count := range tr.counts {
		before[to] = count
	}
	tr.mu.Unlock()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		missing := ""
		tr.mu.Lock()
		for _, to := range allTargets() {
			if tr.counts[to] < before[to]+n {
				missing = to.String()
			}
		}
		tr.mu.Unlock()
		if missing == "" {
			return
		}
		if time.Since(began) > 2*patience {
			t.Fatalf("no %d exchanges with %s", n, missing)
		}
	}
}

// end stops the traffic, lets the silent connections speak, and fails for every
// exchange that failed without an outage to excuse it.
func (tr *traffic) end(t *testing.T) {
	t.Helper()
	tr.stop()
	tr.done.Wait()
	for _, h := range tr.silent {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if err := h.session.Echo(ctx, "still there"); err != nil {
			t.Errorf("%v: a connection that was silent during the fault is lost: %v", h.target, err)
		}
		cancel()
	}
	lost := map[string]int{}
	for _, e := range tr.failed {
		if o := tr.excuseFor(e); o != nil {
			lost[o.what]++
		} else {
			t.Errorf("%v (established: %t) failed from %s to %s: %v",
				e.target, e.session, e.began.Format("05.000"), e.ended.Format("05.000"), e.err)
		}
	}
	total := 0
	for _, to := range allTargets() {
		total += tr.counts[to]
		if tr.counts[to] < 10 {
			t.Errorf("%v was talked to %d times only: that proves nothing", to, tr.counts[to])
		}
	}
	t.Logf("%d exchanges with %d targets; destroyed by faults: %v", total, len(tr.counts), lost)
}

func (tr *traffic) excuseFor(e exchange) *outage {
	for _, o := range tr.outages {
		if o.excuses(e) {
			return o
		}
	}
	return nil
}
