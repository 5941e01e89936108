package userspace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
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
	guard  guarded
	// healPause is the shortest time between two calls of Watch's changed.
	healPause time.Duration
}

var (
	_ dataplane.Writer  = (*Writer)(nil)
	_ dataplane.Watcher = (*Writer)(nil)
)

const healPauseDefault = time.Second

// NewWriter returns a writer for a forwarder, in the same network namespace. Inside is that of
// relay.Config. The guard is that of addresses, nil for none; the writer closes it.
func NewWriter(f *Forwarder, guard Guard, inside func(func() error) error) (*Writer, error) {
	if inside == nil {
		inside = func(f func() error) error { return f() }
	}
	w := &Writer{Forwarder: f, inside: inside, guard: guarded{guard, make(map[service.Frontend]struct{})}, healPause: healPauseDefault}
	if f.part == NodePorts {
		return w, nil
	}
	err := inside(func() (err error) {
		w.routes, err = openRoutes(f.family)
		return err
	})
	return w, err
}

// Close closes the writer's sockets. The forwarder goes on.
func (w *Writer) Close() error {
	err := w.guard.close()
	if w.routes != nil {
		err = errors.Join(err, w.routes.close())
	}
	return err
}

// Read returns our local routes and the open listeners, sorted by ID. What the guard does not have, or has in
// vain, equals no rendered object.
func (w *Writer) Read(ctx context.Context) (objects []dataplane.Object, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := w.guard.read(ctx); err != nil {
		return nil, err
	}
	ids := w.guard.ids()
	if w.routes != nil {
		found, err := w.routes.list(ctx)
		if err != nil {
			return nil, err
		}
		for _, addr := range found {
			id := addressObject(addr).ID
			delete(ids, id)
			objects = append(objects, *w.guard.seen(&dataplane.Object{ID: id, Kind: dataplane.Element}))
		}
	}
	ids[readyID] = struct{}{}
	for id := range w.held {
		ids[id] = struct{}{}
	}
	for id := range ids {
		if o := w.object(id); o != nil {
			objects = append(objects, *o)
		}
	}
	slices.SortFunc(objects, func(a, b dataplane.Object) int { return a.ID.Compare(b.ID) })
	return objects, nil
}

// object returns an object as it is: nil if there is nothing of it.
func (w *Writer) object(id dataplane.ID) *dataplane.Object {
	o := w.Forwarder.object(id)
	if o == nil && w.guard.has(id) {
		return inVain(id)
	}
	return w.guard.seen(o)
}

// Watch calls changed when a listener has died by itself, and when another program has removed one
// of our routes or changed the guard, until the context ends.
func (w *Writer) Watch(ctx context.Context, changed func(by dataplane.Stranger)) error {
	ctx, stop := context.WithCancelCause(ctx)
	gone := make(chan struct{}, 1)
	tell := func() {
		select {
		case gone <- struct{}{}:
		default: // the former one is not reported yet
		}
	}
	var watching sync.WaitGroup
	if w.routes != nil {
		watching.Go(func() { stop(w.routes.watch(ctx, w.inside, tell)) })
	}
	if w.guard.Guard != nil {
		watching.Go(func() { stop(w.guard.Watch(ctx, tell)) })
	}
	defer func() { stop(nil); watching.Wait() }()
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

// attempt is one Write. The order makes every prefix a correct state: listeners are opened, the guard
// lets their clients through and guards new addresses, then addresses come, listeners change, addresses go,
// listeners go, and the guard forgets both. It ignores the Before of a change of a listener, because the
// writer knows what it holds.
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
	failed = append(failed, a.protect(), a.addresses(ctx, true))
	a.modify()
	failed = append(failed, a.addresses(ctx, false))
	a.remove()
	failed = append(failed, a.unprotect())
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

// open parses everything, and opens the wanted listeners that are missing. It gathers what fails for a
// reason of its own. If the host is at fault, it tries the others all the same, because their order must not
// decide which Services are served.
func (a *attempt) open(ctx context.Context) (exhausted error) {
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
			exhausted = err // the last one stands for all
		default:
			if len(a.refused.Failures) < relay.HolderMax {
				a.nameHolder(err)
			}
			a.refused.Failures = append(a.refused.Failures, err)
		}
	}
	return exhausted
}

func (a *attempt) openOne(c *dataplane.Change) *openError {
	if c.ID == readyID {
		return nil // the end of the attempt writes it
	}
	if c.ID.Container != containerListener {
		err := a.w.accepts(c.ID)
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
	if c.After == nil || a.w.Forwarder.object(c.ID) != nil {
		return nil
	}
	a.written.Calls++
	l, err := a.w.Forwarder.open(p, a.tables[c.ID], c.After.Body)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err // without the address, which openError names
		}
		return &openError{owner: c.Owner, place: p, err: err}
	}
	a.opened[c.ID] = l
	a.written.Objects++
	return nil
}

// accepts returns an error for an address or a health check port that this writer cannot write.
func (w *Writer) accepts(id dataplane.ID) error {
	f, ok := elementOf(id)
	switch {
	case !ok:
		return fmt.Errorf("object %s %q cannot be read", id.Container, id.Name)
	case f.Addr.IsValid() && (w.routes == nil || service.FamilyOf(f.Addr) != w.family):
		return fmt.Errorf("object %s %q is not of %s/%s", id.Container, id.Name, w.part, w.family)
	case !f.Addr.IsValid() && w.guard.Guard == nil:
		return fmt.Errorf("object %s %q: there is no guard", id.Container, id.Name)
	}
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
		if c.ID.Container != containerAddress || (c.After != nil) != adding || a.unsure[c.ID] || slices.Contains(a.refused.ids, c.ID) {
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
func (a *attempt) modify() {
	for i := range a.changes {
		c := &a.changes[i]
		l := a.w.held[c.ID]
		t := a.tables[c.ID]
		if t == nil || l == nil || a.opened[c.ID] != nil || !l.Alive() {
			continue
		}
		if err := a.w.change(l, t, c.After.Body); err != nil {
			err = fmt.Errorf("cannot change listener %s: %w", l.Place(), err)
			a.refused.Failures = append(a.refused.Failures, &openError{owner: c.Owner, err: err})
			continue
		}
		a.written.Objects++
	}
}

// remove ends the listeners that are not wanted.
func (a *attempt) remove() {
	for i := range a.changes {
		c := &a.changes[i]
		if l := a.w.held[c.ID]; c.After == nil && l != nil {
			l.retire()
			delete(a.w.held, c.ID)
			a.written.Objects++
		}
	}
}

// certain returns what exists after a write that was carried out in part.
func (a *attempt) certain() map[dataplane.ID]*dataplane.Object {
	certain := make(map[dataplane.ID]*dataplane.Object, len(a.changes))
	for i := range a.changes {
		switch c := &a.changes[i]; {
		case c.ID.Container != containerAddress && !a.unsure[c.ID]:
			certain[c.ID] = a.w.object(c.ID)
		case slices.Contains(a.refused.ids, c.ID):
			certain[c.ID] = nil // it was to be added
		case !a.unsure[c.ID]:
			certain[c.ID] = c.After
		}
	}
	return certain
}
