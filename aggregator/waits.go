package aggregator

import (
	"container/list"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// waits knows since when each key waits for what it wants to be in force, whatever
// holds it back. It is pure. Time must not go backwards.
//
// Invariant: the list is in the order of the times, so that the first is the oldest:
// nothing is walked to find it.
type waits struct {
	order *list.List // of wait
	of    map[service.Key]*list.Element
}

type wait struct {
	key   service.Key
	since time.Time
}

func newWaits() waits { return waits{order: list.New(), of: map[service.Key]*list.Element{}} }

// begin says that a key waits since now, unless it has waited for longer.
func (w *waits) begin(key service.Key, now time.Time) {
	if w.of[key] == nil {
		w.of[key] = w.order.PushBack(wait{key, now})
	}
}

// end says that a key waits no longer.
func (w *waits) end(key service.Key) {
	e := w.of[key]
	if e == nil {
		return
	}
	w.order.Remove(e)
	delete(w.of, key)
	if len(w.of) == 0 {
		w.of = map[service.Key]*list.Element{} // an emptied map keeps the room of all keys
	}
}

// oldest gives since when the oldest waits; zero when none does.
func (w *waits) oldest() time.Time {
	if e := w.order.Front(); e != nil {
		return e.Value.(wait).since
	}
	return time.Time{}
}
