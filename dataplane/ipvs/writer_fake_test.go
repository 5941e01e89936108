package ipvs

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/device"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/genl"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/ipset"
)

// fakeKernel is a kernel in memory that knows what exists, and refuses as Linux does.
// Each of its parts is one connection's view of it.
type fakeKernel struct {
	servers map[dataplane.Frontend]*fakeServer
	sets    map[string]*fakeSet
	// device tells whether it is there; wrong that another kind of device is.
	device, wrong bool
	addresses     map[netip.Addr]bool
	rules         map[dataplane.ID]*dataplane.Object
	// log has a line for each request that changes something, in order.
	log []string
	// fault, when set, gives an error for a line of the log, in the kernel's stead.
	fault func(line string) error
	// opened counts connections; listed counts lists.
	opened, listed int
	written        dataplane.Written
	// announced is what Watch calls, when it runs.
	announced chan func()
}

type fakeServer struct {
	genl.Service
	reals map[netip.AddrPort]genl.Destination
}

type fakeSet struct {
	ipset.Spec
	entries map[ipset.Entry]bool
}

// schedulers are those that the fake has.
var schedulers = []string{"rr", "wrr", "lc", "mh"}

func newFakeKernel() *fakeKernel {
	return &fakeKernel{
		servers: map[dataplane.Frontend]*fakeServer{}, sets: map[string]*fakeSet{}, addresses: map[netip.Addr]bool{},
		rules: map[dataplane.ID]*dataplane.Object{}, announced: make(chan func(), 1),
	}
}

func (k *fakeKernel) open() (*kernelSockets, error) {
	k.opened++
	return &kernelSockets{servers: fakeServers{k}, sets: fakeSets{k}}, nil
}

// asked logs a request, and gives the error that it is to have.
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

func (k fakeServers) do(ctx context.Context, requests []request) []error {
	results := make([]error, len(requests))
	k.fakeKernel.written = k.written.Add(dataplane.Written{Lines: len(requests), Calls: 1})
	for i, r := range requests {
		k.fakeKernel.written.Bytes += len(r.wire().String())
		switch {
		case ctx.Err() != nil:
			results[i] = &genl.NotSentError{Err: ctx.Err()}
		default:
			if results[i] = k.asked(r.wire().String()); results[i] == nil {
				results[i] = k.carryOut(r)
			}
		}
	}
	return results
}

func (k fakeServers) carryOut(r request) error {
	refuse := func(errno syscall.Errno) error { return &genl.Refusal{Request: r.wire(), Errno: errno} }
	s := k.servers[r.server.Frontend]
	if s == nil && r.verb != newServer {
		return refuse(unix.ESRCH)
	}
	if r.verb <= setServer && !slices.Contains(schedulers, r.server.Scheduler) {
		return refuse(unix.ENOENT)
	}
	d := genl.Destination{Addr: r.real.Addr, Weight: r.real.Weight}
	there := false
	if s != nil {
		_, there = s.reals[d.Addr]
	}
	switch r.verb {
	case newServer:
		if s != nil {
			return refuse(unix.EEXIST)
		}
		k.servers[r.server.Frontend] = &fakeServer{r.server, map[netip.AddrPort]genl.Destination{}}
	case setServer:
		s.Service = r.server
	case deleteServer:
		delete(k.servers, r.server.Frontend)
	case newReal:
		if there {
			return refuse(unix.EEXIST)
		}
		s.reals[d.Addr] = d
	case setReal:
		if !there {
			return refuse(unix.ENOENT)
		}
		s.reals[d.Addr] = d
	case deleteReal:
		if !there {
			return refuse(unix.ENOENT)
		}
		delete(s.reals, d.Addr)
	}
	return nil
}

func (k fakeServers) Service(_ context.Context, f dataplane.Frontend) (genl.Service, error) {
	k.fakeKernel.written.Calls++
	if s := k.servers[f]; s != nil {
		return s.Service, nil
	}
	return genl.Service{}, syscall.ESRCH
}

func (k fakeServers) Destinations(_ context.Context, f dataplane.Frontend) ([]genl.Destination, error) {
	if s := k.servers[f]; s != nil {
		return slices.Collect(maps.Values(s.reals)), nil
	}
	return nil, nil
}

func (k fakeServers) Servers(ctx context.Context, wanted func(genl.Service) bool) ([]genl.Server, error) {
	k.listed++
	var all []genl.Server
	for f, s := range k.servers {
		if wanted(s.Service) {
			reals, _ := k.Destinations(ctx, f)
			all = append(all, genl.Server{Service: s.Service, Destinations: reals})
		}
	}
	return all, nil
}

type fakeSets struct{ *fakeKernel }

func (k fakeSets) Close() error { return nil }

func refusedSet(errno syscall.Errno, reason error) error {
	return &ipset.RefusedError{What: "fake", Errno: errno, Reason: reason}
}

func (k fakeSets) Create(_ context.Context, specs []ipset.Spec) []error {
	results := make([]error, len(specs))
	for i, s := range specs {
		found := k.sets[s.Name]
		results[i] = k.asked("create " + s.Name)
		switch {
		case results[i] != nil:
		case found == nil:
			k.sets[s.Name] = &fakeSet{s, map[ipset.Entry]bool{}}
		case found.Spec != s:
			results[i] = refusedSet(unix.EEXIST, ipset.ErrDifferent)
		}
	}
	return results
}

// inUse tells whether a rule asks a set.
func (k fakeSets) inUse(name string) bool {
	for _, o := range k.rules {
		if slices.Contains(o.Refs, SetID(name)) {
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
			results[i] = refusedSet(unix.EBUSY, ipset.ErrInUse)
		default:
			delete(k.sets, name)
		}
	}
	return results
}

func (k fakeSets) Swap(_ context.Context, one, other string) error {
	a, b := k.sets[one], k.sets[other]
	a.Name, b.Name = other, one
	k.sets[one], k.sets[other] = b, a
	return k.asked("swap " + one)
}

func (k fakeSets) Add(_ context.Context, changes []ipset.Change) []error {
	return k.change("add ", changes, func(s *fakeSet, e ipset.Entry) error {
		if len(s.entries) >= int(s.MaxElem) && s.Type != ipset.BitmapPort && !s.entries[e] {
			return refusedSet(4352, ipset.ErrFull)
		}
		s.entries[e] = true
		return nil
	})
}

func (k fakeSets) Delete(_ context.Context, changes []ipset.Change) []error {
	return k.change("delete ", changes, func(s *fakeSet, e ipset.Entry) error {
		delete(s.entries, e)
		return nil
	})
}

func (k fakeSets) change(verb string, changes []ipset.Change, one func(*fakeSet, ipset.Entry) error) []error {
	results := make([]error, len(changes))
	for i, c := range changes {
		if results[i] = k.asked(verb + c.Entry.String() + " in " + c.Set); results[i] != nil {
			continue
		}
		if s := k.sets[c.Set]; s != nil {
			results[i] = one(s, c.Entry)
		} else {
			results[i] = refusedSet(unix.ENOENT, ipset.ErrNoSet)
		}
	}
	return results
}

func (k fakeSets) told(s *fakeSet) ipset.Set {
	told := ipset.Set{Spec: s.Spec, Count: uint32(len(s.entries)), Entries: slices.Collect(maps.Keys(s.entries))}
	if s.Type == ipset.BitmapPort {
		told.LastPort = 65535
	}
	return told
}

func (k fakeSets) Get(_ context.Context, name string) (ipset.Set, error) {
	if s := k.sets[name]; s != nil {
		return k.told(s), nil
	}
	return ipset.Set{}, refusedSet(unix.ENOENT, ipset.ErrNoSet)
}

func (k fakeSets) List(_ context.Context, wanted func(string) bool) ([]ipset.Set, error) {
	k.listed++
	var all []ipset.Set
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
		return false, &device.WrongKindError{Kind: "veth"}
	}
	return k.device, nil
}

func (k fakeDevice) Ensure() error {
	if k.wrong {
		return &device.WrongKindError{Kind: "veth"}
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
			results[i] = device.ErrNoDevice
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

func (k fakeRules) Write(_ context.Context, batch *dataplane.Batch) dataplane.Receipt {
	for _, c := range batch.Changes {
		verb := "rule "
		if c.After == nil {
			verb = "no rule "
		}
		err := k.asked(verb + c.ID.Container + " " + c.ID.Name)
		for _, o := range []*dataplane.Object{c.After} {
			if err == nil && o != nil && slices.ContainsFunc(o.Refs, k.missing) {
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
	return id.Container == ContainerSet && k.sets[id.Name] == nil
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

// about gives the lines of the log that have a text in them.
func (k *fakeKernel) about(text string) []string {
	return slices.DeleteFunc(slices.Clone(k.log), func(line string) bool { return !strings.Contains(line, text) })
}
