// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/listeners"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Writer writes the listeners of a forwarder and, except for the Part NodePorts, local addresses.
//
// If an object cannot be written because of the object itself, Write rejects the batch, with the owners of such
// objects as proven suspects, but everything else in it lands. If the host is at fault instead (for example, no
// descriptors), there are no suspects.
//
// Only one goroutine at a time may call Write and Read of the writers of one forwarder. Watch may run
// concurrently.
type Writer struct {
	*Forwarder
	inside netlink.Inside
	// routes is nil for node ports, which are at the host's own addresses.
	routes *routes
	guard  guarded
}

// Contract returns the functions that the core calls.
func (w *Writer) Contract() dataplane.Writer {
	return dataplane.Writer{Write: w.Write, Read: w.Read, Watch: w.Watch, Close: w.Close}
}

// NewWriter returns a writer for a forwarder, in the same network namespace. The function inside is
// as in relay.Config. The guard protects the addresses, and may be nil; the writer closes it.
func NewWriter(f *Forwarder, guard Guard, inside netlink.Inside) (*Writer, error) {
	w := &Writer{Forwarder: f, inside: inside, guard: guarded{guard, make(map[service.Frontend]struct{})}}
	if f.part == NodePorts {
		return w, nil
	}
	err := inside.Do(func() (err error) {
		w.routes, err = openRoutes(f.family)
		return err
	})
	return w, err
}

// Close closes the writer's sockets. The forwarder keeps running.
func (w *Writer) Close() error {
	err := w.guard.close()
	if w.routes != nil {
		err = errors.Join(err, w.routes.close())
	}
	return err
}

// Read returns Sluice's local routes and the open listeners, sorted by ID. An object that is missing in the guard,
// or exists only there, has a body that differs from every rendered object.
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
	for id := range w.listeners.IDs() {
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

// object returns the current state of an object; nil if it does not exist.
func (w *Writer) object(id dataplane.ID) *dataplane.Object {
	o := w.listeners.Object(id)
	switch {
	case id == readyID && w.ready:
		ready := readyObject()
		return &ready
	case o == nil && w.guard.has(id):
		return inVain(id)
	}
	return w.guard.seen(o)
}

// Watch calls changed when a listener failed, and when another process removed one of Sluice's routes
// or changed the guard, until the context ends.
func (w *Writer) Watch(ctx context.Context, changed func(by dataplane.ForeignProcess)) error {
	ctx, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	if w.routes != nil {
		watching.Go(func() { stop(w.routes.watch(ctx, w.inside, w.listeners.Wake)) })
	}
	if w.guard.Guard != nil {
		watching.Go(func() { stop(w.guard.Watch(ctx, w.listeners.Wake)) })
	}
	defer func() { stop(nil); watching.Wait() }()
	return w.listeners.Watch(ctx, changed)
}

// Write makes one attempt.
func (w *Writer) Write(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
	var of []dataplane.Change
	for _, c := range batch.Changes {
		if c.ID.Container == containerListener {
			of = append(of, c)
		}
	}
	a := &attempt{Attempt: w.listeners.Begin(of), w: w, changes: batch.Changes,
		refused: make(map[dataplane.ID]bool), unsure: make(map[dataplane.ID]bool)}
	return a.run(ctx)
}

// attempt is one Write. The order of its steps makes every prefix a correct state: open listeners; add listeners
// and new addresses to the guard; add addresses; change listeners; remove addresses; remove listeners; remove both
// from the guard.
type attempt struct {
	*listeners.Attempt[*Table]
	w       *Writer
	changes []dataplane.Change
	// refused are the rejected addresses and health check ports, unsure the objects whose state is
	// unknown.
	refused, unsure map[dataplane.ID]bool
}

func (a *attempt) run(ctx context.Context) dataplane.Receipt {
	a.check()
	failed := []error{a.Open(ctx), a.protect(), a.addresses(ctx, true)}
	a.Change()
	failed = append(failed, a.addresses(ctx, false))
	a.Remove()
	err := errors.Join(append(failed, a.unprotect())...)
	if err == nil {
		a.finish()
	}
	return a.Receipt(err, ctx.Err() != nil || len(a.unsure) > 0, a.certain)
}

// check rejects addresses and health check ports that this writer cannot write.
func (a *attempt) check() {
	for i := range a.changes {
		c := &a.changes[i]
		if c.ID == readyID || c.ID.Container == containerListener {
			continue
		}
		if err := a.w.accepts(c.ID); err != nil {
			a.refuse(c, err)
		}
	}
}

// refuse rejects an address or a health check port. The rest of the batch is still written.
func (a *attempt) refuse(c *dataplane.Change, err error) {
	a.Reject(&listeners.OpenError{Owner: c.Owner, Err: err})
	a.refused[c.ID] = true
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

// addresses adds the batch's new addresses, or removes its removed ones.
func (a *attempt) addresses(ctx context.Context, adding bool) error {
	var changed []*dataplane.Change
	var addrs []netip.Addr
	for i := range a.changes {
		c := &a.changes[i]
		if c.ID.Container != containerAddress || (c.After != nil) != adding || a.unsure[c.ID] || a.refused[c.ID] {
			continue
		}
		if addr, err := parseAddress(c.ID); err == nil { // check rejected those with an error
			changed, addrs = append(changed, c), append(addrs, addr)
		}
	}
	if len(addrs) == 0 {
		return nil
	}
	a.Written.Calls += len(addrs)
	var failed error
	for i, err := range a.w.routes.change(ctx, addrs, adding) {
		c := changed[i]
		switch {
		case err == nil:
			a.Written.Objects++
		case adding && refusedAlone(err):
			a.refuse(c, err)
		default:
			a.unsure[c.ID] = true
			failed = err // only the last error is reported
		}
	}
	return failed
}

// refusedAlone reports whether the kernel rejected an address because of the address itself, not for
// lack of memory, privilege or the loopback interface.
func refusedAlone(err error) bool {
	refusal, ok := errors.AsType[*netlink.Rejection](err)
	return ok && !slices.Contains([]unix.Errno{
		unix.ENOMEM, unix.ENOBUFS, unix.EAGAIN, unix.EINTR, unix.EPERM, unix.ENETDOWN, unix.ENODEV, unix.EOPNOTSUPP, unix.EAFNOSUPPORT,
	}, refusal.Errno)
}

// finish marks the node's object as written.
func (a *attempt) finish() {
	for i := range a.changes {
		if c := &a.changes[i]; c.ID == readyID {
			a.w.ready = c.After != nil
			a.Written.Objects++
		}
	}
}

// certain returns the objects whose state is known after a partial write.
func (a *attempt) certain() map[dataplane.ID]*dataplane.Object {
	certain := make(map[dataplane.ID]*dataplane.Object, len(a.changes))
	for i := range a.changes {
		switch c := &a.changes[i]; {
		case c.ID.Container != containerAddress && !a.unsure[c.ID]:
			certain[c.ID] = a.w.object(c.ID)
		case a.refused[c.ID]:
			certain[c.ID] = nil // only additions are rejected
		case !a.unsure[c.ID]:
			certain[c.ID] = c.After
		}
	}
	return certain
}
