package observe

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/service"
)

const (
	// warningsMax bounds the warnings that wait for the log, and warnedMax the objects that are
	// remembered.
	warningsMax, warnedMax = 1000, 10_000
	// warningPause is the shortest time between two lines about one object.
	warningPause = time.Minute
	// othersMax bounds the warnings that one line has besides its first.
	othersMax = 10
)

// Warnings logs what is wrong with API objects, at most one line per object and minute: who may write
// objects must not fill the log of every node. A slow log delays nothing but Run. Make one with
// NewWarnings.
type Warnings struct {
	log     *zap.Logger
	queue   chan service.Warning
	dropped atomic.Uint64
	// warned belongs to the goroutine of Run.
	warned map[string]*warned
}

// warned is an object with a line in the last minute.
type warned struct {
	until time.Time
	// held are the warnings since that line. more counts those that found no room.
	held []service.Warning
	more int
}

// NewWarnings makes a Warnings that logs once Run is called.
func NewWarnings(log *zap.Logger) *Warnings {
	return &Warnings{log: log, queue: make(chan service.Warning, warningsMax), warned: map[string]*warned{}}
}

// Add queues a warning. It never blocks: it drops and counts what is beyond the bounds. Any goroutine
// may call it.
func (w *Warnings) Add(warning service.Warning) {
	select {
	case w.queue <- warning:
	default:
		w.dropped.Add(1)
	}
}

// Dropped returns the number of warnings that were not logged.
func (w *Warnings) Dropped() uint64 { return w.dropped.Load() }

// Run logs warnings until the context ends.
func (w *Warnings) Run(ctx context.Context) {
	tick := time.NewTicker(warningPause / 12)
	defer tick.Stop()
	for {
		select {
		case warning := <-w.queue:
			w.tell(warning)
		case <-tick.C:
			w.tellHeld(time.Now())
		case <-ctx.Done():
			return
		}
	}
}

// tell logs a warning, or holds it back if its object had a line in the last minute.
func (w *Warnings) tell(warning service.Warning) {
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

// tellHeld logs what was held back for long enough, and forgets objects without news.
func (w *Warnings) tellHeld(now time.Time) {
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
	log.Warn("part of an object cannot be used", append([]zap.Field{
		zap.String("object", w.Object), zap.String("field", w.Field), zap.String("problem", w.Message())}, more...)...)
}
