// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

// fakeKernel is a kernel in memory that knows what exists, and rejects as Linux does.
// Each of its parts is one connection's view of it.
type fakeKernel struct {
	servers map[service.Frontend]*fakeServer
	sets    map[string]*fakeSet
	// device is set if it exists, wrong if one of another type does.
	device, wrong bool
	addresses     map[netip.Addr]bool
	rules         map[dataplane.ID]*dataplane.Object
	// log has a line for each request that changes something, in order.
	log []string
	// fault, when set, returns an error for a line of the log, in place of the kernel.
	fault func(line string) error
	// opened counts connections, listed lists, and questions those about real servers, which get the error unanswered.
	opened, listed, questions int
	unanswered                error
	written                   dataplane.Written
	// announced is what Watch calls, when it runs.
	announced chan func()
}

type fakeServer struct {
	wire.Service
	reals map[netip.AddrPort]wire.Destination
}

type fakeSet struct {
	wire.SetSpec
	entries map[wire.Entry]bool
}

// schedulers are those that the fake has.
var schedulers = []string{"rr", "wrr", "lc", "mh"}

func newFakeKernel() *fakeKernel {
	return &fakeKernel{
		servers: map[service.Frontend]*fakeServer{}, sets: map[string]*fakeSet{}, addresses: map[netip.Addr]bool{},
		rules: map[dataplane.ID]*dataplane.Object{}, announced: make(chan func(), 1),
	}
}

func (k *fakeKernel) open() (*kernelSockets, error) {
	k.opened++
	return k.sockets(), nil
}

func (k *fakeKernel) sockets() *kernelSockets {
	return &kernelSockets{servers: fakeServers{k}, changes: fakeServers{k}, sets: fakeSets{k}}
}

// asked logs a request and returns the error that it gets.
func (k *fakeKernel) asked(line string) error {
	k.log = append(k.log, line)
	if k.fault != nil {
		return k.fault(line)
	}
	return nil
}

type fakeServers struct{ *fakeKernel }

func (k fakeServers) Close() error { return nil }

func (k fakeServers) Written() dataplane.Written {
	w := k.written
	k.fakeKernel.written = dataplane.Written{}
	return w
}

func (k fakeServers) Do(ctx context.Context, requests []wire.Request) []error {
	results := make([]error, len(requests))
	k.fakeKernel.written = k.written.Add(dataplane.Written{Lines: len(requests), Calls: 1})
	for i, r := range requests {
		k.fakeKernel.written.Bytes += len(r.String())
		switch {
		case ctx.Err() != nil:
			results[i] = &wire.NotSentError{Err: ctx.Err()}
		default:
			if results[i] = k.asked(r.String()); results[i] == nil {
				results[i] = k.carryOut(r)
			}
		}
	}
	return results
}

func (k fakeServers) carryOut(r wire.Request) error {
	reject := func(errno syscall.Errno) error { return &wire.Rejection{Request: r, Errno: errno} }
	s := k.servers[r.Service.Frontend]
	if s == nil && r.Verb != wire.NewService {
		return reject(unix.ESRCH)
	}
	if r.Verb <= wire.SetService && !slices.Contains(schedulers, r.Service.Scheduler) {
		return reject(unix.ENOENT)
	}
	d := wire.Destination{Real: r.Real}
	there := false
	if s != nil {
		_, there = s.reals[d.Addr]
	}
	switch r.Verb {
	case wire.NewService:
		if s != nil {
			return reject(unix.EEXIST)
		}
		k.servers[r.Service.Frontend] = &fakeServer{r.Service, map[netip.AddrPort]wire.Destination{}}
	case wire.SetService:
		s.Service = r.Service
	case wire.DelService:
		delete(k.servers, r.Service.Frontend)
	case wire.NewReal:
		if there {
			return reject(unix.EEXIST)
		}
		s.reals[d.Addr] = d
	case wire.SetReal:
		if !there {
			return reject(unix.ENOENT)
		}
		d.ActiveConns, d.InactiveConns = s.reals[d.Addr].ActiveConns, s.reals[d.Addr].InactiveConns
		s.reals[d.Addr] = d
	case wire.DelReal:
		if !there {
			return reject(unix.ENOENT)
		}
		delete(s.reals, d.Addr)
	}
	return nil
}

func (k fakeServers) Service(_ context.Context, f service.Frontend) (wire.Service, error) {
	k.fakeKernel.written.Calls++
	if s := k.servers[f]; s != nil {
		return s.Service, nil
	}
	return wire.Service{}, syscall.ESRCH
}

func (k fakeServers) Destinations(_ context.Context, f service.Frontend) ([]wire.Destination, error) {
	k.fakeKernel.questions++
	if k.unanswered != nil {
		return nil, k.unanswered
	}
	if s := k.servers[f]; s != nil {
		return slices.Collect(maps.Values(s.reals)), nil
	}
	return nil, nil
}

func (k fakeServers) List(ctx context.Context, wanted func(wire.Service) bool) ([]wire.Server, error) {
	k.listed++
	var all []wire.Server
	for f, s := range k.servers {
		if wanted(s.Service) {
			reals, _ := k.Destinations(ctx, f)
			all = append(all, wire.Server{Service: s.Service, Destinations: reals})
		}
	}
	return all, nil
}

type fakeSets struct{ *fakeKernel }

func (k fakeSets) Close() error { return nil }

func rejectedSet(errno syscall.Errno, reason error) error {
	return &wire.SetRejection{What: "fake", Errno: errno, Reason: reason}
}

func (k fakeSets) Create(_ context.Context, specs []wire.SetSpec) []error {
	results := make([]error, len(specs))
	for i, s := range specs {
		found := k.sets[s.Name]
		results[i] = k.asked("create " + s.Name)
		switch {
		case results[i] != nil:
		case found == nil:
			k.sets[s.Name] = &fakeSet{s, map[wire.Entry]bool{}}
		case found.SetSpec != s:
			results[i] = rejectedSet(unix.EEXIST, wire.ErrDifferent)
		}
	}
	return results
}

// inUse reports whether a rule looks up a set.
func (k fakeSets) inUse(name string) bool {
	for _, o := range k.rules {
		if slices.Contains(o.Refs(), render.SetID(name)) {
			return true
		}
	}
	return false
}

func (k fakeSets) Destroy(_ context.Context, names []string) []error {
	results := make([]error, len(names))
	for i, name := range names {
		results[i] = k.asked("destroy " + name)
		switch {
		case results[i] != nil:
		case k.inUse(name):
			results[i] = rejectedSet(unix.EBUSY, wire.ErrInUse)
		default:
			delete(k.sets, name)
		}
	}
	return results
}

func (k fakeSets) Add(_ context.Context, changes []wire.EntryChange) []error {
	return k.change("add ", changes, func(s *fakeSet, e wire.Entry) error {
		if len(s.entries) >= int(s.MaxElem) && s.Type != wire.BitmapPort && !s.entries[e] {
			return rejectedSet(4352, wire.ErrFull)
		}
		s.entries[e] = true
		return nil
	})
}

func (k fakeSets) Delete(_ context.Context, changes []wire.EntryChange) []error {
	return k.change("delete ", changes, func(s *fakeSet, e wire.Entry) error {
		delete(s.entries, e)
		return nil
	})
}

func (k fakeSets) change(verb string, changes []wire.EntryChange, one func(*fakeSet, wire.Entry) error) []error {
	results := make([]error, len(changes))
	for i, c := range changes {
		if results[i] = k.asked(verb + c.Entry.String() + " in " + c.Set); results[i] != nil {
			continue
		}
		if s := k.sets[c.Set]; s != nil {
			results[i] = one(s, c.Entry)
		} else {
			results[i] = rejectedSet(unix.ENOENT, wire.ErrNoSet)
		}
	}
	return results
}

func (k fakeSets) told(s *fakeSet) wire.Set {
	told := wire.Set{SetSpec: s.SetSpec, Count: uint32(len(s.entries)), Entries: slices.Collect(maps.Keys(s.entries))}
	if s.Type == wire.BitmapPort {
		told.LastPort = 65535
	}
	return told
}

func (k fakeSets) List(_ context.Context, wanted func(string) bool) ([]wire.Set, error) {
	k.listed++
	var all []wire.Set
	for name, s := range k.sets {
		if wanted(name) {
			all = append(all, k.told(s))
		}
	}
	return all, nil
}

type fakeDevice struct{ *fakeKernel }

func (k fakeDevice) Close() error { return nil }

func (k fakeDevice) Exists() (bool, error) {
	if k.wrong {
		return false, &wire.WrongTypeError{Type: "veth"}
	}
	return k.device, nil
}

func (k fakeDevice) Ensure() error {
	if k.wrong {
		return &wire.WrongTypeError{Type: "veth"}
	}
	k.fakeKernel.device = true
	return k.asked("make the device")
}

func (k fakeDevice) Delete() error {
	k.fakeKernel.device = false
	clear(k.addresses)
	return k.asked("delete the device")
}

func (k fakeDevice) Add(_ context.Context, addresses []netip.Addr) []error {
	results := make([]error, len(addresses))
	for i, a := range addresses {
		results[i] = k.asked("bind " + a.String())
		switch {
		case results[i] != nil:
		case !k.device:
			results[i] = wire.ErrNoDevice
		default:
			k.addresses[a] = true
		}
	}
	return results
}

func (k fakeDevice) Remove(_ context.Context, addresses []netip.Addr) []error {
	results := make([]error, len(addresses))
	for i, a := range addresses {
		results[i] = k.asked("unbind " + a.String())
		delete(k.addresses, a)
	}
	return results
}

func (k fakeDevice) Addresses(int) (own, others []netip.Addr, err error) {
	return slices.SortedFunc(maps.Keys(k.addresses), netip.Addr.Compare), nil, nil
}

func (k fakeDevice) Watch(ctx context.Context, changed func()) error {
	k.announced <- changed
	<-ctx.Done()
	return context.Cause(ctx)
}

// fakeRules is a writer of rules that needs the sets that they ask.
type fakeRules struct{ *fakeKernel }

func (k fakeRules) contract() dataplane.Writer { return dataplane.Writer{Write: k.Write, Read: k.Read} }

func (k fakeRules) Write(_ context.Context, batch *dataplane.Batch) dataplane.Receipt {
	for _, c := range batch.Changes {
		verb := "rule "
		if c.After == nil {
			verb = "no rule "
		}
		err := k.asked(verb + c.ID.Container + " " + c.ID.Name)
		for _, o := range []*dataplane.Object{c.After} {
			if err == nil && o != nil && slices.ContainsFunc(o.Refs(), k.missing) {
				err = unix.ENOENT
			}
		}
		if err != nil {
			return dataplane.Receipt{Outcome: dataplane.Rejected, Certain: k.certain(batch), Err: err}
		}
	}
	for _, c := range batch.Changes {
		delete(k.rules, c.ID)
		if c.After != nil {
			k.rules[c.ID] = c.After
		}
	}
	return dataplane.Receipt{Written: dataplane.Written{Objects: len(batch.Changes), Calls: 1}}
}

func (k fakeRules) missing(id dataplane.ID) bool {
	return id.Container == render.ContainerSet && k.sets[id.Name] == nil
}

func (k fakeRules) certain(batch *dataplane.Batch) map[dataplane.ID]*dataplane.Object {
	certain := map[dataplane.ID]*dataplane.Object{}
	for _, c := range batch.Changes {
		certain[c.ID] = k.rules[c.ID]
	}
	return certain
}

func (k fakeRules) Read(context.Context) ([]dataplane.Object, error) {
	var all []dataplane.Object
	for _, o := range k.rules {
		all = append(all, *o)
	}
	return all, nil
}

// about returns the lines of the log that contain a text.
func (k *fakeKernel) about(text string) []string {
	return slices.DeleteFunc(slices.Clone(k.log), func(line string) bool { return !strings.Contains(line, text) })
}
