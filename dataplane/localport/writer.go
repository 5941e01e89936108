// Package localport lets node ports answer on 127.0.0.1 and ::1 where the kernel's rules cannot: it
// listens there and forwards to the node's own node port, where the rules of another domain choose
// endpoints and remember clients. A change of endpoints therefore changes nothing here. It owns
// these listeners and their connections. internal/daemon/backend builds one domain per family from
// it in nftables mode.
//
//	client ──► 127.0.0.1:30080 ──► this process ──► 192.0.2.10:30080 ──► rules ──► endpoint
//	                 listener          (copies)       the node's own address
//
// A listener is an object: [Renderer] says which are wanted, [Writer] opens, retargets and closes
// them. The reasons and the drawbacks are in docs/adr/0007-localhost-node-ports.md.
//
// When a listener changes, traffic behaves as under the kernel's rules:
//
//   - retargeted (the node's address has changed): open TCP connections keep their target; a UDP
//     session moves with the client's next datagram;
//   - removed: new clients are refused at once; open TCP connections go on until they end, as
//     translated ones do; UDP sessions end, as stale UDP flows are cut;
//   - the process ends, or [Writer.Close]: everything ends.
package localport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/service"
)

// Config tunes a Writer. The defaults hold for each writer, that is for each family.
type Config = relay.Config

// Writer opens, retargets and closes the listeners of one family. It implements [dataplane.Writer]
// and [dataplane.Watcher].
//
// A batch with a listener that cannot be opened is rejected and changes nothing; the suspects are
// the owners of such listeners. If the host is at fault instead (no descriptors, no loopback
// address), listeners that could be opened stay open, and there are no suspects.
//
// Write and Read belong to one goroutine at a time. Watch, Stats and Close may run concurrently.
type Writer struct {
	family service.Family
	relay  *relay.Relay
	// sockets is where Close leaves the listening ones for a successor; nil for nowhere.
	sockets *relay.Sockets
	// held are the listeners that were opened and not removed. A listener that has died stays
	// here until it is written again.
	held map[dataplane.ID]*listener
	// died holds a token while Watch has not reported that a listener has died.
	died chan struct{}
	// healPause is the shortest time between two calls of Watch's changed, so that a listener
	// which dies again and again costs an audit per pause.
	healPause time.Duration
}

var (
	_ dataplane.Writer  = (*Writer)(nil)
	_ dataplane.Watcher = (*Writer)(nil)
)

const healPauseDefault = time.Second

// NewWriter returns a writer for one family. Close ends what it has started.
func NewWriter(family service.Family, config Config) *Writer {
	return &Writer{
		family:    family,
		relay:     relay.New(config),
		sockets:   config.Sockets,
		held:      make(map[dataplane.ID]*listener),
		died:      make(chan struct{}, 1),
		healPause: healPauseDefault,
	}
}

// Close ends all listeners, connections and sessions and waits for their end. After it, nothing can
// be opened. Listening sockets go to Config.Sockets, if there are any.
func (w *Writer) Close() error {
	if w.sockets != nil {
		w.relay.Each(func(l *relay.Listener) { _ = l.Share(w.sockets) }) // the successor opens others
	}
	w.relay.Close()
	return nil
}

// Stats returns the writer's numbers.
func (w *Writer) Stats() *relay.Stats { return w.relay.Stats() }

// Read returns the open listeners, sorted by ID.
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

// object returns the open listener of an identity as an object, nil if there is none.
func (w *Writer) object(id dataplane.ID) *dataplane.Object {
	l := w.held[id]
	if l == nil || !l.Alive() {
		return nil
	}
	o := object(l.Place(), l.target)
	return &o
}

// listener forwards to one target.
type listener struct {
	*relay.Listener
	target netip.AddrPort
}

func (w *Writer) openListener(p place, target netip.AddrPort) (*listener, error) {
	l, err := w.relay.Open(p, relay.Options{Balancer: relay.Fixed(target)})
	if err != nil {
		return nil, err
	}
	return &listener{l, target}, nil
}

// retarget forwards next clients to another target. Open connections keep theirs.
func (l *listener) retarget(to netip.AddrPort) {
	l.target = to
	l.Use(relay.Fixed(to))
}

// Probe returns an error if listening on a family's loopback address fails; a host without IPv6 has
// no ::1. The function inside is that of Config; nil means the process's own namespace.
func Probe(family service.Family, inside func(func() error) error) error {
	if err := relay.Probe(loopback[family], inside); err != nil {
		return fmt.Errorf("node ports on %s: %w", loopback[family], err)
	}
	return nil
}

// parse reads an object.
func (w *Writer) parse(o *dataplane.Object) (place, netip.AddrPort, error) {
	p, err := parsePlace(o.ID)
	if err != nil {
		return p, netip.AddrPort{}, err
	}
	if p.At.Addr() != loopback[w.family] {
		return p, netip.AddrPort{}, fmt.Errorf("object %s %q: want the address %s",
			o.ID.Container, o.ID.Name, loopback[w.family])
	}
	target, err := parseBody(o.Body)
	return p, target, err
}

// Watch calls changed when a listener has died by itself, until the context ends.
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

// reportDeath wakes Watch. It does not block.
func (w *Writer) reportDeath() {
	select {
	case w.died <- struct{}{}:
	default: // Watch has not taken the former token yet
	}
}

// Write makes one attempt. It waits for nothing, so it checks the context between two listeners.
func (w *Writer) Write(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
	a := &attempt{w: w, changes: batch.Changes, opened: make(map[dataplane.ID]*listener)}
	return a.run(ctx)
}

// attempt is one Write: first everything that can fail, opening sockets, then the rest. It ignores
// the Before of a change, because the writer knows what it holds.
type attempt struct {
	w       *Writer
	changes []dataplane.Change
	// opened are the new listeners, which do not serve yet.
	opened  map[dataplane.ID]*listener
	written dataplane.Written
}

func (a *attempt) run(ctx context.Context) dataplane.Receipt {
	failure := a.open(ctx)
	if rejected, ok := errors.AsType[*rejectedError](failure); ok {
		for _, l := range a.opened {
			l.Close()
		}
		return dataplane.Receipt{Outcome: dataplane.Rejected, Suspects: rejected.Suspects(), Err: failure,
			Certain: a.certain(), Written: a.written}
	}
	a.carryOut()
	receipt := dataplane.Receipt{Outcome: dataplane.Landed, Written: a.written, Err: failure}
	if failure != nil {
		receipt.Certain = a.certain()
		receipt.Outcome = dataplane.Busy
		if ctx.Err() != nil {
			receipt.Outcome = dataplane.Unknown
		}
	}
	return receipt
}

// open opens the wanted listeners that are missing. It stops when the context ends or the host is
// at fault, and gathers the listeners that cannot be opened for a reason of their own.
func (a *attempt) open(ctx context.Context) error {
	rejected := &rejectedError{}
	for i := range a.changes {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case a.w.relay.Closed():
			return relay.ErrClosed
		}
		err := a.openOne(&a.changes[i])
		switch {
		case err == nil:
		case err.nodesFault():
			return err
		default:
			if len(rejected.Failures) < relay.HolderMax {
				a.nameHolder(err)
			}
			rejected.Failures = append(rejected.Failures, err)
		}
	}
	if len(rejected.Failures) > 0 {
		return rejected
	}
	return nil
}

func (a *attempt) openOne(c *dataplane.Change) *openError {
	if c.After == nil {
		return nil
	}
	p, target, err := a.w.parse(c.After)
	if err != nil {
		return &openError{owner: c.Owner, place: p, err: err}
	}
	if a.w.object(c.ID) != nil {
		return nil
	}
	a.written.Calls++
	l, err := a.w.openListener(p, target)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err // without the address, which openError names
		}
		return &openError{owner: c.Owner, place: p, err: err}
	}
	a.opened[c.ID] = l
	return nil
}

// nameHolder finds out who holds a port that is taken.
func (a *attempt) nameHolder(e *openError) {
	if !errors.Is(e.err, unix.EADDRINUSE) {
		return
	}
	_ = a.w.relay.Inside(func() error { // on failure, the error tells the user how to find the holder
		e.holder = relay.DescribeHolder(e.place)
		return nil
	})
}

// carryOut does what cannot fail: it starts new listeners, and retargets and closes others. After a
// failure of the host, some new ones are missing.
func (a *attempt) carryOut() {
	for i := range a.changes {
		c := &a.changes[i]
		held, fresh := a.w.held[c.ID], a.opened[c.ID]
		switch {
		case c.After == nil && held != nil:
			held.Close()
			delete(a.w.held, c.ID)
			a.written.Calls++
		case fresh != nil:
			fresh.Start(a.w.reportDeath)
			a.w.held[c.ID] = fresh
		case c.After != nil && a.w.object(c.ID) != nil:
			if target, err := parseBody(c.After.Body); err == nil { // openOne has parsed it before
				held.retarget(target)
			}
		case c.After != nil:
			continue // not opened
		}
		a.written.Objects++
	}
}

// certain returns what exists of each object of the batch. Nothing is ever unknown here.
func (a *attempt) certain() map[dataplane.ID]*dataplane.Object {
	certain := make(map[dataplane.ID]*dataplane.Object, len(a.changes))
	for i := range a.changes {
		certain[a.changes[i].ID] = a.w.object(a.changes[i].ID)
	}
	return certain
}
