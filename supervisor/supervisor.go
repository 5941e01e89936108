// SPDX-License-Identifier: Apache-2.0

// Package supervisor keeps a wanted set of children running. It is generic over
// their key and knows nothing about Services; the proxy uses it for the actors.
//
// A child has a goroutine while it works. One that has nothing to do rests: it keeps
// its state and its lease, and the next Lease.Wake gives it a goroutine again. So an
// idle child costs no stack.
//
// Each child has its own failure score, which decays with time, its own backoff,
// and its own limit at which it is parked, so a child that fails does not delay
// the others. A child that spends longer than the deadline on one message is
// stuck: the supervisor fences it (its lease says so, and its output is rejected),
// ends its context, captures its stack and starts a replacement. Go cannot end a
// goroutine from outside, so the abandoned one is counted until it returns. Run
// fails when there are too many: only the end of the process ends them.
package supervisor

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/mailbox"
)

// Run is the body of a child. It rests when it has nothing to do for now, and is
// called again, with the same lease and another context, after lease.Wake. Otherwise
// it returns nil when it has nothing more to do, which ends the child, and an error
// (or panics) when it has failed. It must bracket the handling of each message with
// lease.Begin and lease.End, and return soon after its context ends.
type Run func(ctx context.Context, lease *Lease) (rests bool, err error)

// Name identifies a child; its String appears in profiles.
type Name interface {
	comparable
	fmt.Stringer
}

// Supervisor keeps the wanted children running.
//
// Concurrency: Want and Nudge may be called from anywhere and never block. All
// state below the mailbox belongs to the goroutine in Run.
type Supervisor[K Name] struct {
	limits  limits
	listen  func(Event[K])
	control *mailbox.Mailbox[request[K], order]
	watch   *watch
	running *runningSet

	// Owned by Run.
	incarnation uint64
	children    map[K]*child
	// fresh has the children that never started, due those that start again. Only the
	// latter are bounded in number per second.
	fresh, due startQueue[K]
	// abandoned maps the incarnations that were given up, and have not returned, to
	// their children.
	abandoned map[uint64]givenUp[K]
	restarts  bucket
}

// request is the key of a control message. Reports carry the incarnation, so
// that two incarnations of one child never overwrite each other's.
type request[K comparable] struct {
	key         K
	verb        verb
	incarnation uint64
}

type verb uint8

const (
	verbWant verb = iota
	verbNudge
	verbReport
)

// order is the body of a control message.
type order struct {
	run Run
	err error
}

// child is the supervisor's record of one wanted child.
type child struct {
	run Run
	// next replaces run once the running incarnation has ended, if the child is
	// wanted again while it retires.
	next    Run
	lease   *Lease
	score   score
	started bool
	parked  bool
	// nudged is set if the child's input has changed since it started.
	nudged bool
	// hung counts its abandoned incarnations.
	hung int
	// wakeAt is the time of the child's one valid entry in the start queue; entries
	// with other times are skipped.
	wakeAt time.Time
}

// New makes a supervisor. The message deadline is how long a child may take over one
// message; 0 means 10 s. The supervisor's goroutine calls listen for each event; listen
// must not block.
func New[K Name](messageDeadline time.Duration, listen func(Event[K])) *Supervisor[K] {
	return &Supervisor[K]{
		limits:   defaults.with(messageDeadline),
		listen:   listen,
		control:  mailbox.New[request[K], order](math.MaxInt, nil),
		watch:    &watch{busy: map[*Lease]time.Time{}},
		running:  newRunningSet(),
		children: map[K]*child{}, abandoned: map[uint64]givenUp[K]{},
	}
}

// Want keeps a child running. Wanting a running child again
// replaces its body: the new one starts when the running one ends.
func (s *Supervisor[K]) Want(key K, run Run) {
	s.control.Post(request[K]{key: key, verb: verbWant}, order{run: run})
}

// Nudge reports that a child's input has changed. A parked child is tried again, at most
// once per second, and less often while incarnations of it hang. A child that works is
// tried again in the same way if it fails and is parked.
func (s *Supervisor[K]) Nudge(key K) {
	s.control.Post(request[K]{key: key, verb: verbNudge}, order{})
}

// Run keeps the children alive until the context ends. Then it ends their contexts, and
// returns when all of them have stopped, but no later than a second after that: it fences
// the others and reports each as Unstopped. An error means that too many incarnations
// hang; the process should end.
func (s *Supervisor[K]) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.dismiss()
	defer cancel()
	patrol := time.NewTicker(s.limits.messageDeadline / 4)
	defer patrol.Stop()
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	for {
		alarm.Reset(s.startDue(ctx, time.Now()))
		select {
		case <-ctx.Done():
			return nil
		case <-s.control.Wake():
			entries, _ := s.control.Take()
			for _, e := range entries {
				s.obey(e.Key, e.Message)
			}
		case <-patrol.C:
			// What the last patrol abandoned has had a while to return: after a pause of the
			// whole process, every message at work looks as if it hung.
			if err := s.crowded(); err != nil {
				return err
			}
			s.patrol()
		case <-alarm.C:
		}
	}
}

func (s *Supervisor[K]) obey(r request[K], o order) {
	switch r.verb {
	case verbWant:
		s.want(r.key, o.run)
	case verbNudge:
		s.nudge(r.key)
	case verbReport:
		s.report(r.key, r.incarnation, o.err)
	}
}

func (s *Supervisor[K]) want(key K, run Run) {
	c := s.children[key]
	if c == nil {
		c = &child{run: run}
		s.children[key] = c
		s.schedule(key, c, time.Now())
		return
	}
	c.next = run
	if c.lease == nil {
		s.nudge(key)
	}
}

// nudge brings a parked child's next try forward. The pause bounds the cost of a child
// whose input changes often and that fails each time.
func (s *Supervisor[K]) nudge(key K) {
	c := s.children[key]
	if c == nil {
		return
	}
	if !c.parked {
		c.nudged = true
		return
	}
	at := c.score.at.Add(s.limits.nudgedAfter(c.hung))
	if now := time.Now(); at.Before(now) {
		at = now
	}
	if at.Before(c.wakeAt) {
		s.schedule(key, c, at)
		c.parked = false
		s.tell(key, 0, Unparked{Nudged: true})
	}
}

// report handles the return of an incarnation.
func (s *Supervisor[K]) report(key K, incarnation uint64, err error) {
	if gone, is := s.abandoned[incarnation]; is {
		delete(s.abandoned, incarnation)
		gone.child.hung-- // not of a later child of the same key
		s.tell(key, incarnation, Returned{Abandoned: len(s.abandoned)})
		return
	}
	c := s.children[key]
	c.lease = nil
	if err == nil {
		s.tell(key, incarnation, Ended{})
		if c.next == nil {
			delete(s.children, key)
			return
		}
		s.schedule(key, c, time.Now())
		return
	}
	pause, points := s.fail(key, c, err)
	s.tell(key, incarnation, Failed{Err: err, Score: points, Backoff: pause})
}

// fail raises the score and schedules the next try, or parks the child.
func (s *Supervisor[K]) fail(key K, c *child, err error) (time.Duration, float64) {
	now := time.Now()
	points := c.score.fail(now, s.limits.scoreHalfLife)
	// The first incarnation that hangs is replaced immediately. If that hangs too, the next one would do no better.
	if points >= s.limits.parkScore || c.hung > 1 {
		pause := s.limits.parkedFor(c.hung)
		c.parked = true
		s.schedule(key, c, now.Add(pause))
		s.tell(key, 0, Parked{Score: points, Err: err, Until: c.wakeAt})
		if c.nudged {
			s.nudge(key)
		}
		return pause, points
	}
	pause := sleep.Backoff(points, s.limits.backoffMin, s.limits.backoffMax)
	s.schedule(key, c, now.Add(pause))
	return pause, points
}

// startDue starts the children that are due and returns the time until the next
// one is.
func (s *Supervisor[K]) startDue(ctx context.Context, now time.Time) time.Duration {
	for {
		next, due := s.first(&s.fresh)
		if !due || next.at.After(now) {
			break // a nudge cannot be early for a child that never started
		}
		heap.Pop(&s.fresh)
		s.start(ctx, next.key, s.children[next.key])
	}
	for {
		next, due := s.first(&s.due)
		if !due {
			return time.Hour
		}
		if wait := next.at.Sub(now); wait > 0 {
			return wait
		}
		if !s.restarts.take(now, s.limits.restartsPerSecond) {
			return time.Second / time.Duration(s.limits.restartsPerSecond)
		}
		heap.Pop(&s.due)
		s.start(ctx, next.key, s.children[next.key])
	}
}

// first returns the earliest valid entry of a start queue, and removes those before it that
// were overtaken.
func (s *Supervisor[K]) first(of *startQueue[K]) (next appointment[K], found bool) {
	for len(*of) > 0 {
		next = (*of)[0]
		if c := s.children[next.key]; c != nil && c.lease == nil && c.wakeAt.Equal(next.at) {
			return next, true
		}
		heap.Pop(of)
	}
	return next, false
}

func (s *Supervisor[K]) start(ctx context.Context, key K, c *child) {
	if c.next != nil {
		c.run, c.next = c.next, nil
	}
	if c.parked {
		c.parked = false
		s.tell(key, 0, Unparked{})
	}
	s.incarnation++
	lease := &Lease{incarnation: s.incarnation, watch: s.watch}
	run := c.run
	lease.resume = func() { s.employ(ctx, key, lease, run) }
	c.lease = lease
	s.tell(key, lease.incarnation, Started{Again: c.started})
	c.started, c.nudged = true, false
	lease.resume()
}

// employ starts a goroutine for a child that works.
func (s *Supervisor[K]) employ(ctx context.Context, key K, lease *Lease, run Run) {
	crowded, ok := s.running.join()
	if !ok {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	lease.employ(cancel)
	go s.live(ctx, cancel, key, lease, run)
	if crowded {
		runtime.Gosched()
	}
}

// live is the goroutine of a child that works.
func (s *Supervisor[K]) live(ctx context.Context, cancel context.CancelFunc, key K, lease *Lease, run Run) {
	defer cancel()
	mark(ctx, key.String(), lease.incarnation)
	for {
		var rests bool
		err := Guarded(func() (err error) {
			rests, err = run(ctx, lease)
			return err
		})
		if rests && err == nil {
			rested, again := lease.rest()
			if rested {
				s.running.leave()
				return
			}
			if again {
				continue
			}
		}
		s.leave(ctx, key, lease, err)
		return
	}
}

// Guarded does work, and returns a panic as a *PanicError.
func Guarded(work func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return work()
}

// leave reports that an incarnation has returned.
func (s *Supervisor[K]) leave(ctx context.Context, key K, lease *Lease, err error) {
	lease.End()
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil // it was told to stop
	}
	if lease.settle() {
		defer s.running.leave()
	}
	to := request[K]{key: key, verb: verbReport, incarnation: lease.incarnation}
	s.control.Post(to, order{err: err})
}

// schedule sets the child's one valid entry in the start queue.
func (s *Supervisor[K]) schedule(key K, c *child, at time.Time) {
	c.wakeAt = at
	to := &s.due
	if !c.started {
		to = &s.fresh
	}
	heap.Push(to, appointment[K]{key: key, at: at})
}

func (s *Supervisor[K]) tell(key K, incarnation uint64, what Change) {
	s.listen(Event[K]{Child: key, Incarnation: incarnation, What: what})
}
