// SPDX-License-Identifier: Apache-2.0

// Package usage remembers how Services and their endpoints were used in the last 15 minutes: new
// connections, refusals, packets and bytes.
//
// Backends have totals. A Recorder reads them every few seconds and keeps the differences, so that an
// idle Service costs nothing. Only its goroutine reads the totals of the kernel. What it publishes never changes.
package usage

import (
	"context"
	"errors"
	"net/netip"
	"slices"
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
	// wanted makes Run take a reading as soon as one may begin.
	wanted chan struct{}
	done   chan struct{}
	known  atomic.Pointer[known]

	// These belong to Run: the totals of the last reading, and the number of amounts in all steps.
	totals Amounts
	kept   int
}

// known is what is known after a reading. It never changes.
type known struct {
	steps []Used
	sum   traffic.At
	at    time.Time // of the totals; zero before the first reading
	// rest is the earliest time of the next reading, failed the error of the last one.
	rest   time.Time
	failed error
	// next is closed after the next reading.
	next chan struct{}
}

// Used is how Services were used between two readings.
type Used struct {
	From, To time.Time
	Amounts  Amounts
}

// New makes a recorder. Read returns the totals of a backend; it may take long, and is called by Run only.
func New(read func(context.Context) (Amounts, error)) *Recorder {
	r := &Recorder{read: read, wanted: make(chan struct{}), done: make(chan struct{})}
	r.known.Store(&known{next: make(chan struct{})})
	return r
}

// Sum returns how much all Services together were used from the first reading to the last one. It only grows. Any
// goroutine may call it; it does not block.
func (r *Recorder) Sum() traffic.At { return r.known.Load().sum }

// Steps returns the differences of the last 15 minutes, the oldest first, which must not be changed.
// Any goroutine may call it; it does not block.
func (r *Recorder) Steps() []Used { return r.known.Load().steps }

// Run reads until the context ends. Call it once.
func (r *Recorder) Run(ctx context.Context) {
	defer close(r.done)
	for ctx.Err() == nil {
		r.step(ctx)
		rest := r.known.Load().rest
		select {
		case <-time.After(max(Step, time.Until(rest))):
		case <-r.wanted:
			sleep.For(ctx, time.Until(rest))
		case <-ctx.Done():
		}
	}
}

// Since returns how Services were used since a time, up to the last reading. From is later than asked if less
// is known. It takes a reading, unless the last one took so long that the next one has to wait for more than
// 5 s. Any goroutine may call it while Run runs.
func (r *Recorder) Since(ctx context.Context, since time.Time) (Used, error) {
	if err := r.refresh(ctx, patience); err != nil {
		return Used{}, err
	}
	k := r.known.Load()
	used := Used{From: k.at, To: k.at, Amounts: Amounts{}}
	for i := len(k.steps) - 1; i >= 0 && k.steps[i].To.After(since); i-- {
		used.From = k.steps[i].From
		used.Amounts.add(k.steps[i].Amounts)
	}
	return used, k.failed
}

// Refresh takes a reading. It gives up after a second, and if the next reading may not begin within half a second. Any
// goroutine may call it while Run runs.
func (r *Recorder) Refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, refreshPatience)
	defer cancel()
	_ = r.refresh(ctx, refreshPatience/2) // the last reading is good enough
}

// refresh waits for the end of a reading, unless the next one may not begin within patience.
func (r *Recorder) refresh(ctx context.Context, patience time.Duration) error {
	k, wanted := r.known.Load(), r.wanted
	if time.Until(k.rest) > patience {
		return nil
	}
	for {
		select {
		case wanted <- struct{}{}:
			wanted = nil
		case <-k.next: // this question's reading, or that of another one
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-r.done:
			return ErrEnded
		}
	}
}

// step takes a reading and keeps the difference to the one before. After a failed reading, the next one has the
// difference.
func (r *Recorder) step(ctx context.Context) {
	before := r.known.Load()
	k := *before
	k.next = make(chan struct{})
	began := time.Now()
	var totals Amounts
	totals, k.failed = r.read(ctx)
	if ctx.Err() != nil {
		return // questions end with Run
	}
	now := time.Now()
	if now.Sub(began) > cheap {
		k.rest = traffic.RestAfter(began, traffic.ReadingShare)
	}
	if k.failed == nil {
		if !k.at.IsZero() {
			used := Used{From: k.at, To: now, Amounts: totals.less(r.totals)}
			for of, amount := range used.Amounts {
				if !of.Endpoint.IsValid() {
					k.sum = k.sum.Plus(amount)
				}
			}
			k.steps = r.keep(k.steps, used)
		}
		r.totals, k.at = totals, now
	}
	r.known.Store(&k)
	close(before.next)
}

// keep returns steps with another difference, added to the last one if that is short: a client that asks often adds
// no steps.
func (r *Recorder) keep(steps []Used, u Used) []Used {
	if last := len(steps) - 1; last >= 0 && u.To.Sub(steps[last].From) <= Step {
		r.kept -= len(steps[last].Amounts)
		u.From = steps[last].From
		u.Amounts.add(steps[last].Amounts)
		steps = steps[:last]
	}
	r.kept += len(u.Amounts)
	steps = append(slices.Clip(steps), u) // an answer may still use the others
	for len(steps) > 1 && (r.kept > amountsMax || u.To.Sub(steps[0].From) > Kept+Step) {
		r.kept -= len(steps[0].Amounts)
		steps = steps[1:]
	}
	return steps
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
