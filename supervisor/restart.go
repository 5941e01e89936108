package supervisor

import (
	"fmt"
	"math"
	"time"
)

// Config says when failed children are restarted. Zero fields take their
// defaults.
type Config struct {
	// BackoffMin is the pause before the first restart. It doubles with each
	// point of the child's score. Default 10 ms.
	BackoffMin time.Duration
	// BackoffMax is the longest pause. Default 30 s.
	BackoffMax time.Duration
	// ScoreHalfLife is the time in which a child's score halves. Default 1 min.
	ScoreHalfLife time.Duration
	// ParkScore is the score at which a child is parked. Default 6.
	ParkScore float64
	// ParkRetry is the time after which a parked child is tried again even if
	// its input has not changed. Default 5 min.
	ParkRetry time.Duration
	// MessageDeadline is how long a child may take over one message. Default
	// 10 s.
	MessageDeadline time.Duration
	// RestartsPerSecond bounds the restarts of all children together; more
	// wait. Default 200.
	RestartsPerSecond int
}

func (c Config) withDefaults() Config {
	defaulted(&c.BackoffMin, 10*time.Millisecond)
	defaulted(&c.BackoffMax, 30*time.Second)
	defaulted(&c.ScoreHalfLife, time.Minute)
	defaulted(&c.ParkScore, 6)
	defaulted(&c.ParkRetry, 5*time.Minute)
	defaulted(&c.MessageDeadline, 10*time.Second)
	defaulted(&c.RestartsPerSecond, 200)
	return c
}

// Validate reports the first number that makes no sense.
func (c Config) Validate() error {
	c = c.withDefaults()
	switch {
	case c.BackoffMin < 0 || c.BackoffMax < c.BackoffMin:
		return fmt.Errorf("supervisor: backoff from %v to %v: want 0 ≤ minimum ≤ maximum",
			c.BackoffMin, c.BackoffMax)
	case c.ScoreHalfLife < 0, c.ParkScore < 1, c.ParkRetry < 0, c.RestartsPerSecond < 1:
		return fmt.Errorf("supervisor: half-life %v, park score %v, park retry %v, restarts per second %d:"+
			" want positive numbers", c.ScoreHalfLife, c.ParkScore, c.ParkRetry, c.RestartsPerSecond)
	case c.MessageDeadline < 0:
		return fmt.Errorf("supervisor: message deadline %v: want a positive duration", c.MessageDeadline)
	}
	return nil
}

func defaulted[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
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

// backoff returns the pause for a score: the minimum after the first failure,
// doubled with each further point, never above the maximum.
func backoff(value float64, lowest, highest time.Duration) time.Duration {
	pause := float64(lowest) * math.Exp2(math.Max(0, value-1))
	if pause > float64(highest) {
		return highest
	}
	return time.Duration(pause)
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

// agenda is a heap (container/heap) of starts, earliest first.
type agenda[K comparable] []appointment[K]

type appointment[K comparable] struct {
	key K
	at  time.Time
}

func (a agenda[K]) Len() int           { return len(a) }
func (a agenda[K]) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a agenda[K]) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }

// Push implements container/heap.
func (a *agenda[K]) Push(x any) { *a = append(*a, x.(appointment[K])) }

// Pop implements container/heap.
func (a *agenda[K]) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	*a = (*a)[:last]
	return x
}
