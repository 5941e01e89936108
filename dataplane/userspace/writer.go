package userspace

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
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Writer writes the listeners of a forwarder, and local addresses unless they are of node ports. It
// implements [dataplane.Writer] and [dataplane.Watcher].
//
// A batch with an object that cannot be written for a reason of its own is rejected with proof, and
// everything else in it lands; the suspects are the owners of such objects. If the host is at fault
// instead (no descriptors), there are no suspects.
//
// Write and Read belong to one goroutine at a time, of all writers of a forwarder. Watch may run
// concurrently.
type Writer struct {
	*Forwarder
	inside func(func() error) error
	// routes is nil for node ports, which are at the host's own addresses.
	routes *routes
	// healPause is the shortest time between two calls of Watch's changed.
	healPause time.Duration
}

var (
	_ dataplane.Writer  = (*Writer)(nil)
	_ dataplane.Watcher = (*Writer)(nil)
)

const healPauseDefault = time.Second

// NewWriter returns a writer for a forwarder, in the same network namespace. Inside is that of
// relay.Config.
func NewWriter(f *Forwarder, inside func(func() error) error) (*Writer, error) {
	if inside == nil {
		inside = func(f func() error) error { return f() }
	}
	w := &Writer{Forwarder: f, inside: inside, healPause: healPauseDefault}
	if f.part == NodePorts {
		return w, nil
	}
	err := inside(func() (err error) {
		w.routes, err = openRoutes(f.family)
		return err
	})
	return w, err
}

// Close closes the writer's socket. The forwarder goes on.
func (w *Writer) Close() error {
	if w.routes == nil {
		return nil
	}
	return w.routes.close()
}

// Read returns our local routes and the open listeners, sorted by ID.
func (w *Writer) Read(ctx context.Context) ([]dataplane.Object, error) {
	var objects []dataplane.Object
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if w.routes != nil {
		found, err := w.routes.list(ctx)
		if err != nil {
			return nil, err
		}
		for _, addr := range found {
			objects = append(objects, addressObject(addr))
		}
	}
	if o := w.object(readyID); o != nil {
		objects = append(objects, *o)
	}
	for id := range w.held {
		if o := w.object(id); o != nil {
			objects = append(objects, *o)
		}
	}
	slices.SortFunc(objects, func(a, b dataplane.Object) int { return a.ID.Compare(b.ID) })
	return objects, nil
}

// Watch calls changed when a listener has died by itself and when another program has removed one
// of our routes, until the context ends.
func (w *Writer) Watch(ctx context.Context, changed func(by dataplane.Stranger)) error {
	ctx, stop := context.WithCancelCause(ctx)
	gone := make(chan struct{}, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if w.routes == nil {
			return
		}
		stop(w.routes.watch(ctx, w.inside, func() {
			select {
			case gone <- struct{}{}:
			default: // the former one is not reported yet
			}
		}))
	}()
	defer func() { stop(nil); <-ended }()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.died:
		case <-gone:
		}
		changed(dataplane.Stranger{})
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(w.healPause):
		}
	}
}

// Write makes one attempt.
func (w *Writer) Write(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
	began := time.Now()
	a := &attempt{w: w, changes: batch.Changes, opened: make(map[dataplane.ID]*listener),
		tables: make(map[dataplane.ID]*Table), unsure: make(map[dataplane.ID]bool)}
	receipt := a.run(ctx)
	receipt.Took, receipt.Written = time.Since(began), a.written
	return receipt
}

// attempt is one Write. The order makes every prefix a correct state: listeners are opened, then
// addresses come, listeners change, addresses go, listeners go. It ignores the Before of a change
// of a listener, because the writer knows what it holds.
type attempt struct {
	w       *Writer
	changes []dataplane.Change
	// tables are the parsed bodies, opened the new listeners.
	tables map[dataplane.ID]*Table
	opened map[dataplane.ID]*listener
	// refused are objects that cannot be written for a reason of their own, unsure those whose
	// state is unknown.
	refused rejectedError
	unsure  map[dataplane.ID]bool
	written dataplane.Written
}

func (a *attempt) run(ctx context.Context) dataplane.Receipt {
	failed := []error{a.open(ctx)}
	for id, l := range a.opened {
		a.w.start(l)
		a.w.held[id] = l
	}
	failed = append(failed, a.addresses(ctx, true), a.modify(), a.addresses(ctx, false))
	a.remove()
	err := errors.Join(failed...)
	switch {
	case err == nil && len(a.refused.Failures) == 0:
		a.finish()
		return dataplane.Receipt{Outcome: dataplane.Landed}
	case err == nil:
		a.finish()
		return dataplane.Receipt{Outcome: dataplane.Rejected, Suspects: a.refused.Suspects(), Proven: true,
			Err: &a.refused, Certain: a.certain()}
	}
	receipt := dataplane.Receipt{Outcome: dataplane.Busy, Err: err, Certain: a.certain()}
	if ctx.Err() != nil || len(a.unsure) > 0 {
		receipt.Outcome = dataplane.Unknown
	}
	return receipt
}

// open parses everything, and opens the wanted listeners that are missing. It stops when the
// context ends or the host is at fault, and gathers what fails for a reason of its own.
func (a *attempt) open(ctx context.Context) error {
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
		case relay.Exhausted(err.err):
			return err
		default:
			if len(a.refused.Failures) < relay.HolderMax {
				a.nameHolder(err)
			}
			a.refused.Failures = append(a.refused.Failures, err)
		}
	}
	return nil
}

func (a *attempt) openOne(c *dataplane.Change) *openError {
	if c.ID == readyID {
		return nil // the end of the attempt writes it
	}
	if c.ID.Container == containerAddress {
		addr, err := parseAddress(c.ID)
		if err == nil && (a.w.routes == nil || service.FamilyOf(addr) != a.w.family) {
			err = fmt.Errorf("object %s %q is not of %s/%s", c.ID.Container, c.ID.Name, a.w.part, a.w.family)
		}
		if err != nil {
			a.refused.ids = append(a.refused.ids, c.ID)
			return &openError{owner: c.Owner, err: err}
		}
		return nil
	}
	p, err := parseListener(c.ID)
	if err == nil && c.After != nil {
		a.tables[c.ID], err = parseTable(c.After.Body)
	}
	if err != nil {
		return &openError{owner: c.Owner, err: err}
	}
	if c.After == nil || a.w.object(c.ID) != nil {
		return nil
	}
	// One that has died has its place already.
	place := a.w.held[c.ID] == nil
	if place && !a.w.registry.listeners.Take() {
		return &openError{owner: c.Owner, place: p, err: &boundError{a.w.registry.listeners.Most()}}
	}
	a.written.Calls++
	l, err := a.w.Forwarder.open(p, a.tables[c.ID], c.After.Body)
	if err != nil {
		if place {
			a.w.registry.listeners.Give()
		}
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err // without the address, which openError names
		}
		return &openError{owner: c.Owner, place: p, err: err}
	}
	a.opened[c.ID] = l
	a.written.Objects++
	return nil
}

// nameHolder finds out who holds a port that is taken.
func (a *attempt) nameHolder(e *openError) {
	if errors.Is(e.err, unix.EADDRINUSE) {
		_ = a.w.inside(func() error { // on failure, the error tells the user how to find the holder
			e.holder = relay.DescribeHolder(e.place)
			return nil
		})
	}
}

// addresses adds the wanted addresses, or removes the unwanted ones.
func (a *attempt) addresses(ctx context.Context, adding bool) error {
	var changed []*dataplane.Change
	var addrs []netip.Addr
	for i := range a.changes {
		c := &a.changes[i]
		if c.ID.Container != containerAddress || (c.After != nil) != adding || slices.Contains(a.refused.ids, c.ID) {
			continue
		}
		if addr, err := parseAddress(c.ID); err == nil { // openOne has parsed it before
			changed, addrs = append(changed, c), append(addrs, addr)
		}
	}
	if len(addrs) == 0 {
		return nil
	}
	a.written.Calls += len(addrs)
	var failed error
	for i, err := range a.w.routes.change(ctx, addrs, adding) {
		c := changed[i]
		switch {
		case err == nil:
			a.written.Objects++
		case adding && refusedAlone(err):
			a.refused.Failures = append(a.refused.Failures, &openError{owner: c.Owner, err: err})
			a.refused.ids = append(a.refused.ids, c.ID)
		default:
			a.unsure[c.ID] = true
			failed = err // the last one stands for all
		}
	}
	return failed
}

// refusedAlone reports whether the kernel refuses an address for what it is: not for want of
// memory, privilege or the loopback interface.
func refusedAlone(err error) bool {
	refusal, ok := errors.AsType[*netlink.Refusal](err)
	return ok && !slices.Contains([]unix.Errno{
		unix.ENOMEM, unix.ENOBUFS, unix.EAGAIN, unix.EINTR, unix.EPERM, unix.ENETDOWN, unix.ENODEV, unix.EOPNOTSUPP, unix.EAFNOSUPPORT,
	}, refusal.Errno)
}

// finish writes the node's own object.
func (a *attempt) finish() {
	for i := range a.changes {
		if c := &a.changes[i]; c.ID == readyID {
			a.w.ready = c.After != nil
			a.written.Objects++
		}
	}
}

// modify gives listeners that were open before their new tables.
func (a *attempt) modify() error {
	var failed []error
	for i := range a.changes {
		c := &a.changes[i]
		l := a.w.held[c.ID]
		if t := a.tables[c.ID]; t != nil && l != nil && a.opened[c.ID] == nil && l.Alive() {
			failed = append(failed, a.w.change(l, t, c.After.Body))
			a.written.Objects++
		}
	}
	return errors.Join(failed...)
}

// remove ends the listeners that are not wanted.
func (a *attempt) remove() {
	for i := range a.changes {
		c := &a.changes[i]
		if l := a.w.held[c.ID]; c.After == nil && l != nil {
			l.retire()
			delete(a.w.held, c.ID)
			a.w.registry.listeners.Give()
			a.written.Objects++
		}
	}
}

// certain returns what exists after a write that was carried out in part.
func (a *attempt) certain() map[dataplane.ID]*dataplane.Object {
	certain := make(map[dataplane.ID]*dataplane.Object, len(a.changes))
	for i := range a.changes {
		switch c := &a.changes[i]; {
		case c.ID.Container != containerAddress:
			certain[c.ID] = a.w.object(c.ID)
		case slices.Contains(a.refused.ids, c.ID):
			certain[c.ID] = nil // it was to be added
		case !a.unsure[c.ID]:
			certain[c.ID] = c.After
		}
	}
	return certain
}
