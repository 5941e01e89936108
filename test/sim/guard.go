// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// guard stands between the writer of a family and the kernel, and objects when the
// invariant of all writing is broken:
//
//	No Service that was served right before a write is served worse after it, unless
//	the API asked for it. Health reports within a second if a Service that has to be
//	served is not.
//
// After each transaction it sends a packet to every frontend whose outcome depends on what
// the transaction touched, and one while deleted base chains are still called. The API has asked for a loss if, under any state that it has
// announced since the last check, the Service that has the frontend does not serve it.
type guard struct {
	family service.Family
	kernel *nftmodel.Kernel
	faults *requestFaults
	blame  blame
	object func(error)
	// disturb lets another program commit. Stalls returns the error of a rejected transaction
	// that fails without a rejection.
	disturb func() error
	stalls  func(touched map[nftmodel.Name]bool) error
	// hangs returns how long a transaction hangs; it ends earlier with the context of the write, writing.
	hangs   func(touched map[nftmodel.Name]bool) time.Duration
	writing context.Context

	// mu is held while a transaction is carried out and judged. Nothing waits while it is
	// held, for virtual time would stand still.
	mu sync.Mutex
	// commits counts the transactions that the writer has sent.
	commits int
	// states holds the states of each Service since the last check, newest last, and since
	// the time of the newest. Noted counts what the API has said. Disturbed are Services whose actor is kept from its work.
	states    map[int][]state
	since     map[int]time.Time
	noted     int
	disturbed map[int]bool
	// tampered is set from another program's change until the next check. What is missing
	// then may be missing because of that change.
	tampered bool
	// altered has what other programs have changed since the last check, as they left it. A
	// write that leads a packet there before it is repaired does not do the damage.
	altered map[nftmodel.Name]part
	// left are those of altered that are still so; nil if that is not known.
	left   map[nftmodel.Name]bool
	hosts  []netip.Addr
	fronts map[nftmodel.Packet]*front
	// open is since when the aggregator writes, in this process.
	open time.Time
}

// front is a frontend, in the form of the packet that is sent to it.
type front struct {
	// owners are all Services that ever named it.
	owners map[int]bool
	// share is how probable it is that the packet reaches an endpoint; reads are the parts
	// of the tables that this depends on.
	share float64
	reads map[nftmodel.Name]bool
	// lost is when it was last seen to become unreachable, damaged whether another program
	// may have done that. Reported ends the objections about health.
	lost              time.Time
	damaged, reported bool
	// wanted is the verdict that the API wants, as of so many notes.
	wanted nftmodel.Verdict
	asOf   int
}

func newGuard(family service.Family, kernel *nftmodel.Kernel, faults *requestFaults, blame blame) *guard {
	return &guard{
		family: family, kernel: kernel, faults: faults, blame: blame,
		object: func(error) {}, disturb: func() error { return nil },
		stalls: func(map[nftmodel.Name]bool) error { return nil },
		hangs:  func(map[nftmodel.Name]bool) time.Duration { return 0 }, writing: context.Background(),
		altered: map[nftmodel.Name]part{}, states: map[int][]state{}, since: map[int]time.Time{}, disturbed: map[int]bool{},
		fronts: map[nftmodel.Packet]*front{},
	}
}

// note records what the API says of Service n now.
func (g *guard) note(n int, s state, hosts []netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if all := g.states[n]; len(all) == 0 || !all[len(all)-1].equal(s) {
		g.states[n] = append(all, s)
	}
	g.since[n], g.hosts = time.Now(), slices.Clone(hosts)
	g.noted++
	for _, p := range g.packets(s) {
		if g.fronts[p] == nil {
			g.fronts[p] = &front{owners: map[int]bool{}}
			g.look(g.fronts[p], p)
		}
		g.fronts[p].owners[n] = true
	}
}

// packets returns one packet to each frontend of a Service. Their senders send nothing
// else.
func (g *guard) packets(s state) (all []nftmodel.Packet) {
	add := func(from netip.Addr, in string, to netip.Addr, port uint16, protocol service.Protocol) {
		f := service.Frontend{Addr: to, Port: port, Protocol: protocol}
		if to == host(g.family, 2) {
			f.Addr = netip.Addr{}
		}
		if _, denied := s.spec.DeniedBy(g.family, f); denied {
			return
		}
		all = append(all, nftmodel.Packet{
			Src: netip.AddrPortFrom(from, 40000), Dst: netip.AddrPortFrom(to, port), Protocol: protocol, In: in, Out: "eth0",
		})
	}
	if s.spec == nil || !s.spec.ClusterIPs[g.family].IsValid() {
		return nil
	}
	client := outside(g.family, 12)
	for _, p := range s.spec.Ports {
		add(localPod(g.family, 97), podInterface, s.spec.ClusterIPs[g.family], p.Port, p.Protocol)
		for _, a := range slices.Concat(s.spec.ExternalIPs[g.family], s.spec.LoadBalancerVIPs[g.family]) {
			add(client, "eth0", a, p.Port, p.Protocol)
		}
		if p.NodePort != 0 {
			add(client, "eth0", host(g.family, 2), p.NodePort, p.Protocol)
		}
	}
	return all
}

// actorDisturbed notes that the actor of Service n, or the node's own, is kept from its
// work.
func (g *guard) actorDisturbed(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.disturbed[n] = true
}

// settled notes which state of Service n is in the kernel at a check. It may be older than
// what the API says now.
func (g *guard) settled(n int, there, now state) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.states[n] = []state{there, now}
	g.noted++
	delete(g.disturbed, n)
	delete(g.disturbed, nodeActor)
	g.tampered = false
	g.faults.forget()
	clear(g.altered)
	g.left = nil
}

// restarted notes that another process takes over.
func (g *guard) restarted() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = time.Time{}
}

// setHosts lets the host change its addresses.
func (g *guard) setHosts(addresses []netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kernel.SetAddresses(addresses...)
	for p, f := range g.fronts {
		g.look(f, p)
	}
}

// openSocket returns a socket whose requests fail as the faults say, and are judged.
func (g *guard) openSocket() (nftkernel.Socket, error) {
	s, err := g.kernel.Open()
	return &socket{s, g}, err
}

// socket is a writer's connection to the kernel.
type socket struct {
	nftkernel.Socket
	guard *guard
}

// Commit implements nftkernel.Socket.
func (s *socket) Commit(t *wire.Transaction) ([]*wire.Rejection, error) {
	g := s.guard
	fault := g.faults.next(false)
	time.Sleep(fault.delay)
	if err := g.hang(t); err != nil {
		return nil, errLost
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.commits++
	switch {
	case fault.rejected != nil:
		return []*wire.Rejection{fault.rejected}, nil
	case fault.err != nil && !fault.taken:
		return nil, fault.err
	}
	touched, damaged := g.kernel.Touched(t), g.unrepaired()
	rejections, err := s.Socket.Commit(t)
	if err == nil && len(rejections) == 0 {
		g.judge(t, touched, damaged)
		g.written(touched)
	}
	if fault.err != nil {
		return nil, fault.err
	}
	if len(rejections) > 0 {
		if stalled := g.stalls(touched); stalled != nil {
			return nil, stalled
		}
	}
	for _, r := range rejections {
		if g.blame == blameNothing {
			r.About = nil
		}
	}
	return rejections, err
}

// during notes that a write with a context is under way, until the function it returns is called.
func (g *guard) during(ctx context.Context) func() {
	set := func(ctx context.Context) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.writing = ctx
	}
	set(ctx)
	return func() { set(context.Background()) }
}

// hang waits for as long as a transaction hangs.
func (g *guard) hang(t *wire.Transaction) error {
	g.mu.Lock()
	longest, ctx := g.hangs(g.kernel.Touched(t)), g.writing
	g.mu.Unlock()
	return wait(ctx, longest)
}

// wait returns after d, or when ctx ends. It asks no timer for no wait: two goroutines of one
// bubble that do so at the same time break the race detector (golang/go#78156).
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Ask implements nftkernel.Socket. A fault that is an error strikes after the first message.
func (s *socket) Ask(ctx context.Context, kind uint16, family uint8, all bool, attrs []byte, each func(wire.Message)) error {
	fault := s.guard.faults.next(true)
	if err := wait(ctx, fault.delay); err != nil {
		return err
	}
	if fault.disturb {
		if err := s.guard.disturb(); err != nil {
			s.guard.object(err)
		}
	}
	if fault.err == nil {
		return s.Socket.Ask(ctx, kind, family, all, attrs, each)
	}
	first := true
	err := s.Socket.Ask(ctx, kind, family, all, attrs, func(m wire.Message) {
		if first {
			each(m)
		}
		first = false
	})
	if err != nil {
		return err
	}
	return fault.err
}

// judge looks at the frontends that depend on what a transaction has touched. What was
// damaged before it is not its fault. Being served worse for a moment is being served worse.
func (g *guard) judge(t *wire.Transaction, touched, damaged map[nftmodel.Name]bool) {
	leaving := g.kernel.Leaving(g.family)
	for p, f := range g.fronts {
		if !f.dependsOn(touched) {
			continue
		}
		before, meanwhile, way := f.share, f.share, ""
		if leaving {
			var outcomes []nftmodel.Outcome
			outcomes, _ = g.kernel.ExploreLeaving(p)
			meanwhile, way = delivered(outcomes), " while the hooks of deleted chains are unregistered"+stepsOf(outcomes)
		}
		steps := g.look(f, p)
		const rounding = 1e-6
		if worst := min(meanwhile, f.share); worst < before-rounding && !f.dependsOn(damaged) && !g.asked(p, f) {
			if worst == f.share {
				way = steps
			}
			sent := nftrender.Statements(t.All())
			g.object(fmt.Errorf("%v: a write left Services %v served worse: packet %v to %v/%v "+
				"reached an endpoint with probability %.3f, now %.3f%s\n%s", g.family, f.numbers(), p.Src, p.Dst, p.Protocol, before, worst, way,
				sent[:min(len(sent), 4<<10)]))
		}
	}
}

// delivered is how probable it is that a packet reaches an endpoint.
func delivered(outcomes []nftmodel.Outcome) (share float64) {
	for _, o := range outcomes {
		if o.Verdict == nftmodel.Delivered {
			share += o.Probability
		}
	}
	return share
}

func (f *front) dependsOn(touched map[nftmodel.Name]bool) bool {
	few, many := touched, f.reads
	if len(few) > len(many) {
		few, many = many, few
	}
	for name := range few {
		if many[name] {
			return true
		}
	}
	return false
}

// look sends the packet, and returns the steps of one of its ways.
func (g *guard) look(f *front, p nftmodel.Packet) string {
	var outcomes []nftmodel.Outcome
	was := f.share
	outcomes, f.reads = g.kernel.Explore(p)
	f.share = delivered(outcomes)
	switch {
	case f.share > 0:
		f.lost, f.damaged, f.reported = time.Time{}, false, false
	case was > 0 || f.lost.IsZero():
		f.lost = time.Now()
	}
	return stepsOf(outcomes)
}

// asked reports whether the API has asked for a loss: one of those who have the frontend
// would not serve it under one of its states, or none has it any more.
func (g *guard) asked(p nftmodel.Packet, f *front) bool {
	named := false
	for n := range f.owners {
		mine, all := 0, 0
		for _, s := range g.states[n] {
			switch g.expected(p, n, s) {
			case nftmodel.Delivered:
				mine++
			case nftmodel.Untouched:
			default:
				return true
			}
			all++
		}
		if mine > 0 && mine < all {
			return true
		}
		named = named || mine > 0
	}
	return !named
}

// expected returns the verdict on a packet if Service n is alone.
func (g *guard) expected(p nftmodel.Packet, n int, s state) nftmodel.Verdict {
	return newJudge(g.family, s.facts, g.hosts, []served{serve(n, s)}).expect(p).verdict
}

// wanted returns what is expected now of a frontend that Service n alone has.
func (g *guard) wanted(f *front, p nftmodel.Packet, n int, now state) nftmodel.Verdict {
	if f.asOf != g.noted {
		f.asOf, f.wanted = g.noted, g.expected(p, n, now)
	}
	return f.wanted
}

func (f *front) numbers() (all []int) {
	for n := range f.owners {
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

// silenceMax is how long something that is wanted may be missing before health says so:
// the second of the invariant, and one between two looks.
const silenceMax = 2 * time.Second

// checkHealth objects when a Service that has to be served is not, is neither quarantined
// nor disturbed, and the aggregator has nothing pending. It is called every second.
// HeldBack reports whether rendering fails, or the kernel rejects the Service.
func (g *guard) checkHealth(s aggregator.Status, heldBack func(*service.Spec) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	switch {
	case !s.Open:
		g.open = time.Time{}
		return
	case g.open.IsZero():
		g.open = now
	}
	nodeHeld := slices.ContainsFunc(s.Quarantined, func(q aggregator.QuarantinedKey) bool { return q.Key == service.Node })
	if !s.OldestPending.IsZero() || s.NodeAtFault || nodeHeld || g.tampered || g.disturbed[nodeActor] || now.Sub(g.open) < silenceMax {
		return
	}
	for p, f := range g.fronts {
		if f.share > 0 || f.damaged || f.reported || len(f.owners) != 1 || now.Sub(f.lost) < silenceMax {
			continue
		}
		n := f.numbers()[0]
		last := g.states[n][len(g.states[n])-1]
		if g.disturbed[n] || now.Sub(g.since[n]) < silenceMax || last.spec == nil || heldBack(last.spec) ||
			slices.ContainsFunc(s.Quarantined, func(q aggregator.QuarantinedKey) bool { return q.Key == keyOf(n) }) ||
			g.wanted(f, p, n, last) != nftmodel.Delivered {
			continue
		}
		f.reported = true
		g.object(fmt.Errorf("%v: health is silent: %v/%v of Service %d has not been applied for %v, "+
			"and nothing is pending: %+v", g.family, p.Dst, p.Protocol, n, now.Sub(f.lost), s))
	}
}
