// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/dataplane"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// The number of a Service's first port determines its defect: the rules of this Service have an element with the port
// in its key, and no other rules have one.
const (
	rejectedPorts = 20000
	brokenPorts   = 21000
	stalledPorts  = 22000
	hungPorts     = 23000 // stalled after a while
	defectsEnd    = 24000
)

// defects records which defects are repaired. It is safe for concurrent use by kernels and renderers.
type defects struct {
	mu       sync.Mutex
	repaired map[uint16]bool
}

func (d *defects) repair(port uint16) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.repaired == nil {
		d.repaired = make(map[uint16]bool)
	}
	d.repaired[port] = true
}

func (d *defects) between(port, from, to uint16) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return port >= from && port < to && !d.repaired[port]
}

// rejected reports whether every transaction with a Service of this port fails, and stalled whether it fails without a
// rejection. broken reports whether rendering the Service panics.
func (d *defects) rejected(port uint16) bool {
	return d.between(port, rejectedPorts, brokenPorts) || d.stalled(port)
}
func (d *defects) stalled(port uint16) bool { return d.between(port, stalledPorts, defectsEnd) }
func (d *defects) broken(port uint16) bool  { return d.between(port, brokenPorts, stalledPorts) }

// frontendSets are the sets with frontends as keys. Every Service has an element for each of its ports in one of them.
var frontendSets = []string{
	nftrender.SetName("frontends"), nftrender.SetName("no-endpoints"), nftrender.SetName("no-local-endpoints"),
	nftrender.SetName("passed"),
}

// portOf returns the port of a frontend's element; 0 for other elements. The key of a frontend
// ends with its port, in a separate word.
func portOf(element nftmodel.Name) uint16 {
	const wordBytes = 4
	at := len(element.Key) - wordBytes
	if element.Table != nftrender.TableName || !slices.Contains(frontendSets, element.Set) || at <= 0 {
		return 0
	}
	return uint16(element.Key[at])<<8 | uint16(element.Key[at+1])
}

// rejects reports whether the kernel rejects an element.
func (d *defects) rejects(element nftmodel.Name) bool { return d.rejected(portOf(element)) }

// stalls returns the error of a rejected transaction that touches these parts, if one of them belongs to a stalled
// Service: the kernel lacks memory, or its answer is lost.
func (d *defects) stalls(touched map[nftmodel.Name]bool) error {
	for element := range touched {
		if port := portOf(element); d.stalled(port) {
			return []error{&netlink.NotSentError{Err: unix.ENOMEM}, errLost}[port%2]
		}
	}
	return nil
}

// hangs returns how long a transaction that touches these parts hangs before it fails.
func (d *defects) hangs(touched map[nftmodel.Name]bool) (longest time.Duration) {
	for element := range touched {
		if port := portOf(element); port >= hungPorts && d.stalled(port) {
			longest = max(longest, []time.Duration{15 * time.Second, 30 * time.Second, 2 * time.Minute}[port%3])
		}
	}
	return longest
}

// breaks reports whether rendering a view has to fail.
func (d *defects) breaks(view *service.View) bool {
	for _, family := range service.Families {
		for i := range view.Ports[family] {
			if d.broken(view.Ports[family][i].Port) {
				return true
			}
		}
	}
	return false
}

// holdBack reports whether the current rules of a Service cannot be applied for a family, so that its last applied
// rules stay.
func (d *defects) holdBack(spec *service.Spec, family service.Family) bool {
	if spec == nil {
		return false
	}
	for i := range spec.Ports {
		// A failed rendering holds back both families, a rejection only those in which the Service has rules.
		if d.broken(spec.Ports[i].Port) || (d.rejected(spec.Ports[i].Port) && spec.ClusterIPs[family].IsValid()) {
			return true
		}
	}
	return false
}

// requestFault is a fault that strikes transactions, or queries if ask is set, a number of times.
type requestFault struct {
	ask bool
	// skip is how many requests are served first, so that faults also strike between the
	// transactions of a divided batch.
	skip, times int
	delay       time.Duration
	// until, when set, is when the fault ends.
	until time.Time
	// taken is set if a transaction is carried out although err is returned.
	taken bool
	err   error
	// rejected is the error number with which the kernel rejects a whole transaction.
	rejected *wire.Rejection
	// disturb lets another program commit before the query is answered.
	disturb bool
}

// requestFaults decides what goes wrong with the requests of one writer.
type requestFaults struct {
	mu     sync.Mutex
	queued []requestFault
	// struck is set once a request has failed since the last check.
	struck bool
}

func (f *requestFaults) add(fault requestFault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queued = append(f.queued, fault)
}

// clear ends all faults.
func (f *requestFaults) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queued = nil
}

// next returns the fault of a request, the zero fault for none.
func (f *requestFaults) next(ask bool) requestFault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.queued {
		q := &f.queued[i]
		switch {
		case q.ask != ask || q.times == 0 || !q.until.IsZero() && time.Now().After(q.until):
			continue
		case q.skip > 0:
			q.skip--
			return requestFault{}
		default:
			q.times--
			f.struck = f.struck || q.err != nil || q.rejected != nil
			return *q
		}
	}
	return requestFault{}
}

// hasStruck reports whether a request has failed since forget.
func (f *requestFaults) hasStruck() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.struck
}

// forget forgets that requests have failed.
func (f *requestFaults) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.struck = false
}

// errLost is the error of a transaction whose answer was lost.
var errLost = errors.New("the kernel's answer was lost")

// failureOf returns a fault that lets requests fail, times times.
func failureOf(variant uint64, times int) requestFault {
	d := newRandom(variant, 0)
	if d.percent(20) {
		return requestFault{
			ask: true, times: times, skip: d.IntN(10),
			err: []error{netlink.ErrInterrupted, unix.ENOBUFS, unix.EPERM}[d.IntN(3)],
		}
	}
	f := requestFault{times: times, skip: d.IntN(3)}
	switch d.IntN(7) {
	case 0:
		f.err = &netlink.NotSentError{Err: unix.ENOBUFS}
	case 1:
		f.err = &netlink.NotSentError{Err: unix.EINTR}
	case 2:
		f.err = &netlink.NotSentError{Err: unix.EPERM}
	case 3:
		f.err, f.taken = errLost, true
	case 4:
		f.err = errLost
	case 5:
		f.rejected = &wire.Rejection{Errno: unix.EINVAL}
	case 6:
		f.rejected = &wire.Rejection{Errno: unix.EOPNOTSUPP}
	}
	return f
}

// slownessOf returns a fault that delays requests. A delay beyond the writer's timeout strikes once.
func slownessOf(variant uint64, times int) requestFault {
	d := newRandom(variant, 0)
	f := requestFault{
		ask: d.percent(20), times: times, skip: d.IntN(3),
		delay: []time.Duration{time.Second, 15 * time.Second, 3 * time.Minute}[d.IntN(3)],
	}
	if f.delay > time.Minute {
		f.times = 1
	}
	return f
}

// actorFaults makes actors panic and hang. Actors call it.
type actorFaults struct {
	mu     sync.Mutex
	panics map[service.Key]int
	hangs  map[service.Key]int
	// hanging counts the actors that hang now, replaced by their supervisor or not.
	hanging map[service.Key]int
	// resumed is closed to let those that hang continue.
	resumed chan struct{}
}

func newActorFaults() *actorFaults {
	return &actorFaults{
		panics: map[service.Key]int{}, hangs: map[service.Key]int{}, hanging: map[service.Key]int{},
		resumed: make(chan struct{}),
	}
}

// add makes the next messages of an actor fail.
func (f *actorFaults) add(e event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.do == panicActor {
		f.panics[keyOf(e.n)] += e.m
	} else {
		f.hangs[keyOf(e.n)] += e.m
	}
}

// pending reports whether an actor fails or hangs, or will.
func (f *actorFaults) pending(n int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.panics[keyOf(n)]+f.hangs[keyOf(n)]+f.hanging[keyOf(n)] > 0
}

// resume lets all actors continue, those that would hang later included.
func (f *actorFaults) resume() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.hangs)
	close(f.resumed)
	f.resumed = make(chan struct{})
}

// intercept is for proxy.Config. A hanging actor does not look at its context: it is
// truly stuck.
func (f *actorFaults) intercept(_ context.Context, key service.Key, message actors.Message) {
	f.mu.Lock()
	fail, hang, resumed := f.panics[key] > 0, f.hangs[key] > 0, f.resumed
	switch {
	case fail:
		f.panics[key]--
	case hang:
		f.hangs[key]--
		f.hanging[key]++
	}
	f.mu.Unlock()
	switch {
	case fail:
		panic(fmt.Sprintf("the simulation fails %v at %T", key, message))
	case hang:
		<-resumed
		f.mu.Lock()
		f.hanging[key]--
		f.mu.Unlock()
	}
}

// renderer counts renderings, and panics for broken Services.
type renderer struct {
	dataplane.Renderer
	defects  *defects
	rendered *atomic.Int64
	// before, when set, is called before a Service is rendered.
	before func(*service.View)
}

// Service implements dataplane.Renderer.
func (r renderer) Service(ctx context.Context, view *service.View, facts *service.NodeFacts) []dataplane.Object {
	r.rendered.Add(1)
	if r.before != nil {
		r.before(view)
	}
	if r.defects.breaks(view) {
		panic(fmt.Sprintf("%v is broken", view.Key))
	}
	return r.Renderer.Service(ctx, view, facts)
}

// checked returns a writer that only one goroutine at a time may use, on a kernel that
// announces what other programs change. Report receives errors in the use of the writer.
func (s *stack) checked(w dataplane.Writer, report func(error)) dataplane.Writer {
	var busy atomic.Int32
	enter := func() func() {
		if busy.Add(1) > 1 {
			report(fmt.Errorf("two jobs in flight for one writer"))
		}
		return func() { busy.Add(-1) }
	}
	return dataplane.Writer{
		Write: func(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
			defer enter()()
			defer s.guard.during(ctx)()
			return w.Write(ctx, batch)
		},
		Read: func(ctx context.Context) ([]dataplane.Object, error) {
			defer enter()()
			return w.Read(ctx)
		},
		ReadAhead: func(ctx context.Context) {
			defer enter()()
			w.ReadAhead(ctx)
		},
		Cut: func(changes []dataplane.Change) []dataplane.Change {
			defer enter()()
			return w.Cut(changes)
		},
		Origin: w.Origin,
		Watch:  s.watch,
		Close: func() error {
			defer enter()()
			return w.Close()
		},
	}
}
