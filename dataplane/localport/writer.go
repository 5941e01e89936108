package localport

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Writer opens, retargets and closes the listeners of one family. It implements
// [dataplane.Writer] and [dataplane.Watcher].
//
// A batch with a listener that cannot be opened is refused and changes nothing;
// the suspects are those whose listeners are meant. When the host is at fault
// instead (no descriptors, no loopback address), what can be opened stays open,
// and nobody is suspected.
//
// Write and Read belong to one goroutine at a time; Watch, Stats and Close may
// run beside them.
type Writer struct {
	family    service.Family
	household *household
	// held are the listeners that were opened and not removed; those that have
	// died are among them until they are written again.
	held map[dataplane.ID]*listener
	// died holds a token while a listener has died that Watch has not told of.
	died chan struct{}
	// healPause is the shortest time between two calls of Watch's changed, so
	// that a listener which dies again and again costs an audit per pause.
	healPause time.Duration
}

var (
	_ dataplane.Writer  = (*Writer)(nil)
	_ dataplane.Watcher = (*Writer)(nil)
)

const healPauseDefault = time.Second

// NewWriter makes a writer for one family. Close ends what it has started.
func NewWriter(family service.Family, config Config) *Writer {
	return &Writer{
		family:    family,
		household: newHousehold(config.withDefaults()),
		held:      make(map[dataplane.ID]*listener),
		died:      make(chan struct{}, 1),
		healPause: healPauseDefault,
	}
}

// Close ends all listeners, connections and sessions, waits until they have
// ended, and lets nothing be opened any more.
func (w *Writer) Close() error {
	w.household.crew.close()
	return nil
}

// Stats gives the present numbers.
func (w *Writer) Stats() Stats { return w.household.counters.stats() }

// Write makes one attempt. It does not wait for anything, so that the context
// counts between two listeners.
func (w *Writer) Write(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
	a := &attempt{w: w, changes: batch.Changes, opened: make(map[dataplane.ID]*listener)}
	return a.run(ctx)
}

// Read gives the listeners that are open, sorted by ID.
func (w *Writer) Read(ctx context.Context) ([]dataplane.Object, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var objects []dataplane.Object
	for id := range w.held {
		if o := w.object(id); o != nil {
			objects = append(objects, *o)
		}
	}
	slices.SortFunc(objects, func(a, b dataplane.Object) int { return a.ID.Compare(b.ID) })
	return objects, nil
}

// object gives what is there under an identity, nil for nothing.
func (w *Writer) object(id dataplane.ID) *dataplane.Object {
	if l := w.held[id]; l != nil && l.alive.Load() {
		return l.object()
	}
	return nil
}

// parse reads an object.
func (w *Writer) parse(o *dataplane.Object) (place, netip.AddrPort, error) {
	p, err := parsePlace(o.ID)
	if err != nil {
		return p, netip.AddrPort{}, err
	}
	if p.at.Addr() != loopback[w.family] {
		return p, netip.AddrPort{}, fmt.Errorf("object %s %q: want an address of %s", o.ID.Container, o.ID.Name, loopback[w.family])
	}
	target, err := parseBody(o.Body)
	return p, target, err
}

// Watch calls changed when a listener has died by itself, until the context
// ends.
func (w *Writer) Watch(ctx context.Context, changed func(by dataplane.Stranger)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.died:
			changed(dataplane.Stranger{})
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(w.healPause):
		}
	}
}

// tellDeath lets Watch know; it does not block.
func (w *Writer) tellDeath() {
	select {
	case w.died <- struct{}{}:
	default: // it will know
	}
}
