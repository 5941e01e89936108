// Package usage remembers how Services and their endpoints were used in the last 15 minutes: new
// connections, refusals, packets and bytes.
//
// Backends have totals. A Recorder reads them every few seconds and keeps the differences, so that an
// idle Service costs nothing. One goroutine owns them, and nothing else reads the totals of the kernel.
package usage

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/service"
)

// Of names a Service or, with an address, one of its endpoints.
type Of struct {
	Service  service.Key
	Endpoint netip.AddrPort
}

// Amounts are totals, or differences of totals, by Service and endpoint. Amounts of zero are left out.
type Amounts map[Of]traffic.At

const (
	// Step is the time between two readings.
	Step = 15 * time.Second
	// Kept is how long differences are kept.
	Kept = 15 * time.Minute
	// share bounds the time that readings take, for questions as well: the pause after one is at least
	// share times as long.
	share = 50
	// cheap is the length of a reading after which there is no pause.
	cheap = 5 * time.Millisecond
	// patience is how long a question waits for the end of that pause. Otherwise, the last reading answers it.
	patience = 5 * time.Second
	// refreshPatience is how long Refresh waits.
	refreshPatience = time.Second
	// amountsMax bounds the differences, about 160 bytes each. The oldest ones go first.
	amountsMax = 200_000
)

// ErrEnded means that the recorder no longer runs.
var ErrEnded = errors.New("the proxy is stopping")

// Recorder reads totals and keeps their differences.
type Recorder struct {
	read func(context.Context) (Amounts, error)
	asks chan ask
	done chan struct{}
	sum  atomic.Pointer[traffic.At]

	// These belong to Run.
	steps  []Used
	kept   int // amounts in steps
	totals Amounts
	at     time.Time // of totals; zero before the first reading
	// rest is the earliest time of the next reading, failed the error of the last one.
	rest   time.Time
	failed error
}

// Used is how Services were used between two readings.
type Used struct {
	From, To time.Time
	Amounts  Amounts
}

// ask is a question for what was used since a time. A zero time asks for the steps. Patience is how long it waits for a
// reading that may not begin yet.
type ask struct {
	since, asked time.Time
	patience     time.Duration
	reply        chan<- answer
}

type answer struct {
	used  Used
	steps []Used
	err   error
}

// New makes a recorder. Read returns the totals of a backend; it may take long, and is called by Run only.
func New(read func(context.Context) (Amounts, error)) *Recorder {
	r := &Recorder{read: read, asks: make(chan ask), done: make(chan struct{})}
	r.sum.Store(&traffic.At{})
	return r
}

// Sum returns what all Services together were used for since the first reading, as of the last one. It only
// grows. Any goroutine may call it; it does not block.
func (r *Recorder) Sum() traffic.At { return *r.sum.Load() }

// Run reads until the context ends. Call it once.
func (r *Recorder) Run(ctx context.Context) {
	defer close(r.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			if wait := time.Until(r.rest); wait > 0 { // for a question, there was a reading
				timer.Reset(wait)
				continue
			}
			r.step(ctx)
			timer.Reset(max(Step, time.Until(r.rest)))
		case a := <-r.asks:
			a.reply <- r.answer(ctx, &a)
		}
	}
}

// Since returns how Services were used since a time, up to the last reading. From is later than asked if less
// is known. It takes a reading, unless the last one took so long that the next one has to wait for more than
// 5 s. Any goroutine may call it while Run runs.
func (r *Recorder) Since(ctx context.Context, since time.Time) (Used, error) {
	a := r.ask(ctx, since)
	return a.used, a.err
}

// Steps returns the differences of the last 15 minutes, the oldest first, which must not be changed.
// Any goroutine may call it while Run runs.
func (r *Recorder) Steps(ctx context.Context) ([]Used, error) {
	a := r.ask(ctx, time.Time{})
	return a.steps, a.err
}

// Refresh takes a reading. It gives up after a second, and if the next reading may not begin within half a second. Any
// goroutine may call it while Run runs.
func (r *Recorder) Refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, refreshPatience)
	defer cancel()
	now, reply := time.Now(), make(chan answer, 1)
	select {
	case r.asks <- ask{now, now, refreshPatience / 2, reply}:
	case <-ctx.Done():
		return
	case <-r.done:
		return
	}
	select {
	case <-reply:
	case <-ctx.Done():
	case <-r.done:
	}
}

func (r *Recorder) ask(ctx context.Context, since time.Time) answer {
	reply := make(chan answer, 1)
	select {
	case r.asks <- ask{since, time.Now(), patience, reply}:
	case <-ctx.Done():
		return answer{err: ctx.Err()}
	case <-r.done:
		return answer{err: ErrEnded}
	}
	select {
	case a := <-reply:
		return a
	case <-ctx.Done():
		return answer{err: ctx.Err()}
	case <-r.done:
		return answer{err: ErrEnded}
	}
}

func (r *Recorder) answer(ctx context.Context, a *ask) answer {
	if a.since.IsZero() {
		return answer{steps: append([]Used(nil), r.steps...)}
	}
	if wait := time.Until(r.rest); wait <= a.patience && !r.at.After(a.asked) {
		if !sleep.For(ctx, wait) {
			return answer{err: ctx.Err()}
		}
		r.step(ctx)
	}
	if r.failed != nil {
		return answer{err: r.failed}
	}
	used := Used{From: r.at, To: r.at, Amounts: Amounts{}}
	for i := len(r.steps) - 1; i >= 0 && r.steps[i].To.After(a.since); i-- {
		used.From = r.steps[i].From
		used.Amounts.add(r.steps[i].Amounts)
	}
	return answer{used: used}
}

// step takes a reading and keeps the difference to the one before. After a failed reading, the next one has the
// difference.
func (r *Recorder) step(ctx context.Context) {
	began := time.Now()
	var totals Amounts
	totals, r.failed = r.read(ctx)
	now := time.Now()
	if took := now.Sub(began); took > cheap {
		r.rest = now.Add(share * took)
	}
	if r.failed != nil {
		return
	}
	if !r.at.IsZero() {
		used := Used{From: r.at, To: now, Amounts: totals.less(r.totals)}
		sum := r.Sum()
		for of, amount := range used.Amounts {
			if !of.Endpoint.IsValid() {
				sum = sum.Plus(amount)
			}
		}
		r.sum.Store(&sum)
		r.keep(used)
	}
	r.totals, r.at = totals, now
}

// keep adds a difference, to the last one if that is short: a client that asks often adds no steps.
func (r *Recorder) keep(u Used) {
	if last := len(r.steps) - 1; last >= 0 && u.To.Sub(r.steps[last].From) <= Step {
		r.kept -= len(r.steps[last].Amounts)
		merged := Used{From: r.steps[last].From, To: u.To, Amounts: u.Amounts}
		merged.Amounts.add(r.steps[last].Amounts)
		r.steps[last], u = merged, merged
	} else {
		r.steps = append(r.steps, u)
	}
	r.kept += len(u.Amounts)
	for len(r.steps) > 1 && (r.kept > amountsMax || u.To.Sub(r.steps[0].From) > Kept+Step) {
		r.kept -= len(r.steps[0].Amounts)
		r.steps = append([]Used(nil), r.steps[1:]...) // an answer may have the others
	}
}

// Add adds an amount, unless it is zero.
func (a Amounts) Add(of Of, amount traffic.At) {
	if amount != (traffic.At{}) {
		a[of] = a[of].Plus(amount)
	}
}

func (a Amounts) add(others Amounts) {
	for of, other := range others {
		a.Add(of, other)
	}
}

// less returns the differences to earlier totals. Totals that are smaller than before began again from 0.
func (a Amounts) less(before Amounts) Amounts {
	differences := Amounts{}
	for of, now := range a {
		if used := now.Less(before[of]); used != (traffic.At{}) {
			differences[of] = used
		}
	}
	return differences
}
