package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// slowAfter is how long a request may stay without an answer before the prober
	// starts.
	slowAfter = 3 * time.Second
	// holdMax is how long requests are held back at most, whatever the probe says: a
	// proxy in between may treat the path of the probe differently.
	holdMax = time.Minute
	// unreadyMax is how long they are held back while a server answers that it is
	// not ready.
	unreadyMax = 10 * time.Second
	// releaseMax bounds the time between two releases when the probe is answered but
	// requests are not.
	releaseMax = 10 * time.Second
	// probeMin and probeMax bound the timeout of a probe. It doubles with each timeout,
	// so that a slow server is not taken for a dead one for ever.
	probeMin, probeMax = 2 * time.Second, 16 * time.Second
)

// line is the connection to the API server, which all resources share: it is up or down
// for all of them.
//
// Only bytes from the server count as an answer: client-go returns an empty watch when
// the server closes a connection.
//
// While requests get no answer they are held back, and only the probe is sent: one small
// request per second. When the probe is answered, every request goes on at once, also
// those that sleep after a failure: changes made meanwhile are in force within 2 s. Each
// node probes at a random time within the second, which spreads the nodes of a cluster. A server that answers with 429 or 5xx is not ready: it gets
// the probe, and otherwise only what backoff and Retry-After allow.
type line struct {
	// ask is the probe.
	ask func(context.Context) (probed, error)
	// unanswered is called for each probe without an answer, while requests are held.
	unanswered func(error)
	// pause is the time from one probe to the next.
	pause func() time.Duration
	// trouble holds one sign that something is wrong.
	trouble chan struct{}

	mu sync.Mutex
	// failing are the resources whose last request got no answer, or 429 or 5xx.
	failing map[string]bool
	// open are the requests without an answer so far.
	open map[*openRequest]bool
	// held is closed when requests may go on; nil while they may. why is the reason.
	held chan struct{}
	why  error
	// woken is closed, and made anew, when the server has become ready.
	woken chan struct{}
	// unready is set when the last probe did not find the server ready, and
	// answering since when it answers nevertheless.
	unready   bool
	answering time.Time
	// released is when requests were let go last, and vain how often without any
	// getting an answer since.
	released time.Time
	vain     int
}

// openRequest is a request without an answer so far.
type openRequest struct {
	began time.Time
	end   context.CancelCauseFunc
	slow  *time.Timer
}

// probed is the answer to a probe.
type probed struct {
	ready bool
	// after is when the server wants to be asked again; 0 if it does not say.
	after time.Duration
}

func newLine(ask func(context.Context) (probed, error), unanswered func(error)) *line {
	return &line{
		ask: ask, unanswered: unanswered,
		pause:   func() time.Duration { return 500*time.Millisecond + rand.N(time.Second) },
		trouble: make(chan struct{}, 1), failing: make(map[string]bool), open: make(map[*openRequest]bool), woken: make(chan struct{}),
	}
}

// await waits until requests for a resource may go, or ctx ends. Before it waits, it
// reports the reason.
func (l *line) await(ctx context.Context, resource string, told func(why error)) error {
	l.mu.Lock()
	held, why := l.held, l.why
	if held != nil {
		l.failing[resource] = true
	}
	l.mu.Unlock()
	if held == nil {
		return ctx.Err()
	}
	told(why)
	limit := time.NewTimer(holdMax)
	defer limit.Stop()
	select {
	case <-held:
	case <-limit.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// wake returns a channel that is closed when the server next becomes ready.
func (l *line) wake() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.woken
}

// sleep waits for a duration, until woken is closed, or ctx ends. Call wake before the
// request, or a recovery in between is missed.
func (l *line) sleep(ctx context.Context, d time.Duration, woken <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-woken:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// answered records that a request for a resource succeeded, which outweighs any probe.
func (l *line) answered(resource string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.failing, resource)
	if l.unready {
		l.recover(time.Now())
	}
	l.vain = 0
}

// heard records an error response that is not the server's fault.
func (l *line) heard(resource string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.failing, resource)
}

// refused records a response with 429 or 5xx.
func (l *line) refused(resource string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failing[resource] = true
	l.stir()
}

// lost records a request without an answer.
func (l *line) lost(resource string, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failing[resource] = true
	l.hold(why)
	l.stir()
}

// stir wakes the prober.
func (l *line) stir() {
	select {
	case l.trouble <- struct{}{}:
	default: // it is awake already
	}
}

// hold holds requests back from now on. The lock is held.
func (l *line) hold(why error) {
	l.unready, l.answering, l.why = true, time.Time{}, why
	if l.held == nil {
		l.held = make(chan struct{})
	}
}

// release lets requests go. The lock is held.
func (l *line) release(now time.Time) {
	if l.held == nil {
		return
	}
	close(l.held)
	l.held, l.released = nil, now
	l.vain++
}

// recover lets requests go and wakes all sleepers. The lock is held.
func (l *line) recover(now time.Time) {
	l.unready = false
	l.release(now)
	close(l.woken)
	l.woken = make(chan struct{})
}

// begin records a request that is about to be sent; end cancels it.
func (l *line) begin(end context.CancelCauseFunc) *openRequest {
	r := &openRequest{began: time.Now(), end: end, slow: time.AfterFunc(slowAfter, l.stir)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[r] = true
	return r
}

// done records that a request was answered or has failed.
func (l *line) done(r *openRequest) {
	r.slow.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, r)
}

// silentError ends a request without an answer when the probe gets none either.
type silentError struct {
	waited time.Duration
	probe  error
}

func (e *silentError) Error() string {
	return fmt.Sprintf("nothing for %v, nor over a second connection: %v", e.waited.Round(time.Second), e.probe)
}

// run probes while there is trouble, until ctx ends.
func (l *line) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.trouble:
		}
		patience, next := probeMin, time.Now().Add(l.pause())
		for l.troubled() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(next)):
			}
			began := time.Now()
			asking, cancel := context.WithTimeout(ctx, patience)
			answer, err := l.ask(asking)
			cancel()
			if ctx.Err() != nil {
				return
			}
			if patience = probeMin; errors.Is(err, context.DeadlineExceeded) {
				patience = min(2*patience, probeMax)
			}
			wait := max(l.pause(), answer.after)
			if l.judge(time.Now(), answer, err) {
				wait *= 10 // it is ready but rejects requests
			}
			next = began.Add(wait)
		}
	}
}

// troubled reports whether the prober has something to do.
func (l *line) troubled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unready || l.held != nil || len(l.failing) > 0 || len(l.slow(time.Now())) > 0
}

// slow lists the requests that have waited too long for an answer. The lock is held.
func (l *line) slow(now time.Time) (all []*openRequest) {
	for r := range l.open {
		if now.Sub(r.began) >= slowAfter {
			all = append(all, r)
		}
	}
	return all
}

// judge acts on the result of a probe. It reports whether the server is ready and was
// ready before.
func (l *line) judge(now time.Time, answer probed, err error) (wasReady bool) {
	if err != nil {
		l.mu.Lock()
		l.hold(err)
		for _, r := range l.slow(now) {
			r.end(&silentError{now.Sub(r.began), err})
		}
		l.mu.Unlock()
		l.unanswered(err)
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answering.IsZero() {
		l.answering = now
	}
	if !answer.ready {
		l.unready = true
		if now.Sub(l.answering) >= unreadyMax {
			l.release(now)
		}
		return false
	}
	if l.vain > 0 && now.Sub(l.released) < min(time.Second<<min(l.vain, 10), releaseMax) {
		return false // the last release was recent and got no answer
	}
	if !l.unready {
		return true
	}
	l.recover(now)
	return false
}
