// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// warnedMax bounds the objects that are remembered.
	warnedMax = 10_000
	// warningPause is the shortest time between two lines about one object.
	warningPause = time.Minute
	// othersMax bounds the warnings that one line has besides its first.
	othersMax = 10
)

// Warnings logs what is wrong with API objects, at most one line per object and minute: someone who may write objects
// must not be able to fill the log of every node. Make one with NewWarnings.
type Warnings struct {
	log     *zap.Logger
	dropped atomic.Uint64

	mu     sync.Mutex
	warned map[string]*warned
}

// warned is an object with a line in the last minute.
type warned struct {
	until time.Time
	// held are the warnings since that line. more counts those that found no room.
	held []service.Warning
	more int
}

// NewWarnings makes a Warnings. The log must not block.
func NewWarnings(log *zap.Logger) *Warnings {
	return &Warnings{log: log, warned: map[string]*warned{}}
}

// Dropped returns the number of warnings that were not logged.
func (w *Warnings) Dropped() uint64 { return w.dropped.Load() }

// Run logs the warnings that were held back, until the context ends.
func (w *Warnings) Run(ctx context.Context) {
	for sleep.For(ctx, warningPause/12) {
		w.tellHeld(time.Now())
	}
}

// Add logs a warning, or holds it back if its object had a line in the last minute. It drops and counts
// the warnings beyond the limits. Any goroutine may call it.
func (w *Warnings) Add(warning service.Warning) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.warned[warning.Object]
	switch {
	case one == nil && len(w.warned) == warnedMax:
		w.dropped.Add(1)
	case one == nil:
		w.warned[warning.Object] = &warned{until: time.Now().Add(warningPause)}
		LogWarning(w.log, warning)
	case len(one.held) <= othersMax:
		one.held = append(one.held, warning)
	default:
		one.more++
		w.dropped.Add(1)
	}
}

// tellHeld logs what was held back for long enough, and forgets objects without further warnings.
func (w *Warnings) tellHeld(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for object, one := range w.warned {
		switch {
		case now.Before(one.until):
		case len(one.held) == 0:
			delete(w.warned, object)
		default:
			var fields []zap.Field
			var others []string
			for _, warning := range one.held[1:] {
				others = append(others, warning.Field+": "+warning.Message())
			}
			if len(others) > 0 {
				fields = append(fields, zap.Strings("others", others))
			}
			if one.more > 0 {
				fields = append(fields, zap.Int("more", one.more))
			}
			LogWarning(w.log, one.held[0], fields...)
			*one = warned{until: now.Add(warningPause)}
		}
	}
}

// LogWarning logs what is wrong with an API object.
func LogWarning(log *zap.Logger, w service.Warning, more ...zap.Field) {
	log.Warn("ignored invalid field in API object", append([]zap.Field{
		zap.String("object", w.Object), zap.String("field", w.Field), zap.String("problem", w.Message())}, more...)...)
}
