// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"cmp"
	"math"
	"time"
)

// limits are the numbers of a supervisor. Only tests change more than one.
type limits struct {
	// backoffMin is the pause before the first restart. It doubles with each point
	// of the child's score, up to backoffMax.
	backoffMin, backoffMax time.Duration
	// scoreHalfLife is the time in which a child's score halves.
	scoreHalfLife time.Duration
	// parkScore is the score at which a child is parked, parkRetry the time after
	// which it is tried again even if its input has not changed.
	parkScore float64
	parkRetry time.Duration
	// messageDeadline is how long a child may take over one message.
	messageDeadline time.Duration
	// nudgeWait is the pause after which a parked child whose input has changed is tried
	// again. hungWait replaces it while more than one of its incarnations hang.
	nudgeWait, hungWait time.Duration
	// abandonedMax bounds the incarnations, of all children together, that hang.
	abandonedMax int
	// stopWait is how long stopping waits for children that work. Those that honor their
	// context need no more, and the others do not count.
	stopWait time.Duration
	// restartsPerSecond bounds the restarts of all children together; more wait.
	restartsPerSecond int
}

var defaults = limits{
	backoffMin: 10 * time.Millisecond, backoffMax: 30 * time.Second, scoreHalfLife: time.Minute,
	parkScore: 6, parkRetry: 5 * time.Minute, messageDeadline: 10 * time.Second,
	nudgeWait: time.Second, hungWait: time.Minute, abandonedMax: 8, stopWait: time.Second,
	restartsPerSecond: 200,
}

func (l limits) with(messageDeadline time.Duration) limits {
	l.messageDeadline = cmp.Or(messageDeadline, l.messageDeadline)
	return l
}

// parkedFor and nudgedAfter return the pause of a parked child, without and with a change
// of its input. From the second incarnation that hangs, the pauses double with each one:
// until it returns, it may keep a CPU.
func (l limits) parkedFor(hung int) time.Duration { return l.parkRetry << max(0, hung-2) }

func (l limits) nudgedAfter(hung int) time.Duration {
	if hung < 2 {
		return l.nudgeWait
	}
	return l.hungWait << (hung - 2)
}

// score counts a child's failures and forgets them over time. It is pure: the
// caller passes the time.
type score struct {
	value float64
	at    time.Time
}

// fail adds one failure and returns the new value.
func (s *score) fail(now time.Time, halfLife time.Duration) float64 {
	if s.at.IsZero() {
		s.value = 0
	} else {
		s.value *= math.Exp2(-float64(now.Sub(s.at)) / float64(halfLife))
	}
	s.value++
	s.at = now
	return s.value
}

// bucket bounds the restarts of all children together: a token bucket with one
// second's tokens.
type bucket struct {
	tokens float64
	at     time.Time
}

// take reports whether a token was left.
func (b *bucket) take(now time.Time, perSecond int) bool {
	rate := float64(perSecond)
	if b.at.IsZero() {
		b.tokens = rate
	} else {
		b.tokens = math.Min(rate, b.tokens+rate*now.Sub(b.at).Seconds())
	}
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// startQueue is a heap (container/heap) of starts, earliest first.
type startQueue[K comparable] []appointment[K]

type appointment[K comparable] struct {
	key K
	at  time.Time
}

func (a startQueue[K]) Len() int           { return len(a) }
func (a startQueue[K]) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a startQueue[K]) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }

// Push implements container/heap.
func (a *startQueue[K]) Push(x any) { *a = append(*a, x.(appointment[K])) }

// Pop implements container/heap.
func (a *startQueue[K]) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	if *a = (*a)[:last]; last == 0 {
		*a = nil // it was as long as the number of children
	}
	return x
}
