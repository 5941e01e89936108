package supervisor

import (
	"math"
	"time"
)

// score counts a child's failures and forgets them with time. It is pure: the
// caller tells the time.
type score struct {
	value float64
	at    time.Time
}

// fail adds one failure at the given time and gives the new value.
func (s *score) fail(now time.Time, halfLife time.Duration) float64 {
	s.value = s.read(now, halfLife) + 1
	s.at = now
	return s.value
}

// read gives the value after the decay since the last failure.
func (s *score) read(now time.Time, halfLife time.Duration) float64 {
	if s.at.IsZero() {
		return 0
	}
	return s.value * math.Exp2(-float64(now.Sub(s.at))/float64(halfLife))
}

// backoff is the pause that a score asks for: the minimum after the first
// failure, doubled with each further point, never above the maximum.
func backoff(value float64, lowest, highest time.Duration) time.Duration {
	pause := float64(lowest) * math.Exp2(math.Max(0, value-1))
	if pause > float64(highest) {
		return highest
	}
	return time.Duration(pause)
}
