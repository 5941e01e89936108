package supervisor

import (
	"fmt"
	"time"
)

// Config holds the supervisor's numbers. Zero fields take their defaults.
type Config struct {
	// BackoffMin is the pause before the first restart; it doubles with each
	// point of the child's score. Default 10 ms.
	BackoffMin time.Duration
	// BackoffMax is the longest pause. Default 30 s.
	BackoffMax time.Duration
	// ScoreHalfLife is the time in which a child's score halves. Default 1 min.
	ScoreHalfLife time.Duration
	// ParkScore is the score at which a child is parked. Default 6.
	ParkScore float64
	// ParkRetry is when a parked child is tried again without a change of its
	// input. Default 5 min.
	ParkRetry time.Duration
	// MessageDeadline is how long a child may take over one message. Default
	// 10 s.
	MessageDeadline time.Duration
	// RestartsPerSecond bounds the restarts over all children; more wait.
	// Default 200.
	RestartsPerSecond int
	// Listen is told what happens, by the supervisor's goroutine; it must not
	// block. Nil listens to nothing.
	Listen func(Event)
}

func (c Config) withDefaults() Config {
	defaulted(&c.BackoffMin, 10*time.Millisecond)
	defaulted(&c.BackoffMax, 30*time.Second)
	defaulted(&c.ScoreHalfLife, time.Minute)
	defaulted(&c.ParkScore, 6)
	defaulted(&c.ParkRetry, 5*time.Minute)
	defaulted(&c.MessageDeadline, 10*time.Second)
	defaulted(&c.RestartsPerSecond, 200)
	if c.Listen == nil {
		c.Listen = func(Event) {}
	}
	return c
}

// Validate reports the first number that makes no sense.
func (c Config) Validate() error {
	c = c.withDefaults()
	switch {
	case c.BackoffMin < 0 || c.BackoffMax < c.BackoffMin:
		return fmt.Errorf("supervisor: backoff from %v to %v: want 0 ≤ minimum ≤ maximum", c.BackoffMin, c.BackoffMax)
	case c.ScoreHalfLife < 0, c.ParkScore < 1, c.ParkRetry < 0, c.RestartsPerSecond < 1:
		return fmt.Errorf("supervisor: half-life %v, park score %v, park retry %v, restarts per second %d: want positive numbers",
			c.ScoreHalfLife, c.ParkScore, c.ParkRetry, c.RestartsPerSecond)
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
