// Package supervisor keeps a wanted set of goroutines, the children, running. It
// is generic over their key and knows nothing about Services; the proxy uses it
// for the actors.
//
// Each child has its own failure score, which decays with time, its own backoff,
// and its own limit at which it is parked, so a child that fails does not delay
// the others. A child that spends longer than the deadline on one message is
// stuck: the supervisor fences it (its lease says so, and its output is refused),
// captures its stack and starts a replacement. Go cannot end a goroutine from
// outside, so the abandoned one is counted until it returns.
package supervisor

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/mailbox"
)

// Run is the body of a child. It returns nil when it has nothing more to do,
// which ends the child, and an error (or panics) when it has failed. It must
// bracket the handling of each message with lease.Begin and lease.End, and
// return soon after its context ends.
type Run func(ctx context.Context, lease *Lease) error

// Key names a child; its String is the child's name in profiles.
type Key interface {
	comparable
	fmt.Stringer
}

// Supervisor keeps the wanted children running.
//
// Concurrency: Want and Nudge may be called from anywhere and never block. All
// state below the mailbox belongs to the goroutine in Run.
type Supervisor[K Key] struct {
	config  Config
	listen  func(Event[K])
	control *mailbox.Mailbox[request[K], order]
	watch   *watch
	running sync.WaitGroup

	// Owned by Run.
	incarnation uint64
	children    map[K]*child
	due         agenda[K]
	abandoned   int
	restarts    bucket
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
	// wanted anew while it retires.
	next    Run
	lease   *Lease
	cancel  context.CancelFunc
	score   score
	started bool
	parked  bool
	// wakeAt is the time of the child's one valid entry in the agenda; entries
	// with other times are skipped.
	wakeAt time.Time
}

// New makes a supervisor. Its goroutine calls listen for each event; listen must
// not block. Nil ignores the events.
func New[K Key](config Config, listen func(Event[K])) (*Supervisor[K], error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if listen == nil {
		listen = func(Event[K]) {}
	}
	return &Supervisor[K]{
		config:   config.withDefaults(),
		listen:   listen,
		control:  mailbox.New[request[K], order](math.MaxInt, nil),
		watch:    &watch{busy: map[*Lease]time.Time{}},
		children: map[K]*child{},
	}, nil
}

// Want keeps a child running. Wanting a running child again
// replaces its body: the new one starts when the running one ends.
func (s *Supervisor[K]) Want(key K, run Run) {
	s.control.Post(request[K]{key: key, verb: verbWant}, order{run: run})
}

// Nudge reports that a child's input has changed. A parked child is tried again,
// at most once per second.
func (s *Supervisor[K]) Nudge(key K) {
	s.control.Post(request[K]{key: key, verb: verbNudge}, order{})
}

// Run keeps the children alive until the context ends, then cancels them all and
// waits for those that are not abandoned.
func (s *Supervisor[K]) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer s.running.Wait()
	defer cancel()
	patrol := time.NewTicker(s.config.MessageDeadline / 4)
	defer patrol.Stop()
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	for {
		alarm.Reset(s.startDue(ctx, time.Now()))
		select {
		case <-ctx.Done():
			return
		case <-s.control.Wake():
			entries, _ := s.control.Take(0)
			for _, e := range entries {
				s.obey(e.Key, e.Message)
			}
		case <-patrol.C:
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

// nudge brings a parked child's next try forward. The pause of a second bounds
// the cost of a child whose input changes often and that fails each time.
func (s *Supervisor[K]) nudge(key K) {
	c := s.children[key]
	if c == nil || !c.parked {
		return
	}
	at := c.score.at.Add(time.Second)
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
	c := s.children[key]
	if c == nil || c.lease == nil || c.lease.incarnation != incarnation {
		s.abandoned--
		s.tell(key, incarnation, Returned{Abandoned: s.abandoned})
		return
	}
	c.cancel()
	c.lease, c.cancel = nil, nil
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
	points := c.score.fail(now, s.config.ScoreHalfLife)
	if points >= s.config.ParkScore {
		c.parked = true
		s.schedule(key, c, now.Add(s.config.ParkRetry))
		s.tell(key, 0, Parked{Score: points, Err: err, Until: c.wakeAt})
		return s.config.ParkRetry, points
	}
	pause := backoff(points, s.config.BackoffMin, s.config.BackoffMax)
	s.schedule(key, c, now.Add(pause))
	return pause, points
}

// patrol abandons the children that are past their message deadline.
func (s *Supervisor[K]) patrol() {
	late := s.watch.overdue(s.config.MessageDeadline)
	if len(late) == 0 {
		return
	}
	for key, c := range s.children {
		spent, stuck := late[c.lease]
		if c.lease == nil || !stuck {
			continue
		}
		lease := c.lease
		if !lease.settled.CompareAndSwap(false, true) {
			continue // it returned at the last moment; its report is on the way
		}
		lease.fenced.Store(true)
		stack := stackOf(lease.incarnation)
		c.cancel()
		c.lease, c.cancel = nil, nil
		s.abandoned++
		s.running.Done()
		err := fmt.Errorf("stuck with one message for %v", spent.Round(time.Millisecond))
		pause, points := s.fail(key, c, err)
		s.tell(key, lease.incarnation, Stuck{For: spent,
			Stack: stack, Score: points, Backoff: pause, Abandoned: s.abandoned})
	}
}

// startDue starts the children that are due and returns the time until the next
// one is.
func (s *Supervisor[K]) startDue(ctx context.Context, now time.Time) time.Duration {
	for len(s.due) > 0 {
		next := s.due[0]
		c := s.children[next.key]
		if c == nil || c.lease != nil || !c.wakeAt.Equal(next.at) {
			heap.Pop(&s.due) // overtaken
			continue
		}
		if wait := next.at.Sub(now); wait > 0 {
			return wait
		}
		if c.started && !s.restarts.take(now, s.config.RestartsPerSecond) {
			return time.Second / time.Duration(s.config.RestartsPerSecond)
		}
		heap.Pop(&s.due)
		s.start(ctx, next.key, c)
	}
	return time.Hour
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
	childCtx, cancel := context.WithCancel(ctx)
	c.lease, c.cancel = lease, cancel
	s.tell(key, lease.incarnation, Started{Again: c.started})
	c.started = true
	s.running.Add(1)
	run := c.run
	go s.live(childCtx, key, lease, run)
}

// live is the goroutine of one incarnation. It keeps its frames small: an idle
// child's stack holds little more than the frames from here to where it waits, and
// the runtime halves a stack only if less than a quarter is in use.
func (s *Supervisor[K]) live(ctx context.Context, key K, lease *Lease, run Run) {
	mark(ctx, key.String(), lease.incarnation)
	s.leave(ctx, key, lease, guarded(ctx, lease, run))
}

// guarded turns a panic into an error.
func guarded(ctx context.Context, lease *Lease, run Run) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return run(ctx, lease)
}

// leave reports that an incarnation has returned.
func (s *Supervisor[K]) leave(ctx context.Context, key K, lease *Lease, err error) {
	lease.End()
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil // it was told to stop
	}
	if lease.settled.CompareAndSwap(false, true) {
		defer s.running.Done()
	}
	s.control.Post(request[K]{key: key, verb: verbReport, incarnation: lease.incarnation}, order{err: err})
}

// schedule sets the child's one valid entry in the agenda.
func (s *Supervisor[K]) schedule(key K, c *child, at time.Time) {
	c.wakeAt = at
	heap.Push(&s.due, appointment[K]{key: key, at: at})
}

func (s *Supervisor[K]) tell(key K, incarnation uint64, what Change) {
	s.listen(Event[K]{Child: key, Incarnation: incarnation, What: what})
}
