package sim

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/memory"
	"github.com/sluice-proxy/sluice/service"
)

// guard stands between the writer of a family and its kernel, and objects when the
// invariant of all writing is broken:
//
//	No Service that was served right before a write is served worse after it, unless
//	the API asked for it; and health says so within a second whenever one that has to
//	be served is not.
//
// After each command it sends a packet to every frontend whose way leads through a chain
// that the command names. The API has asked for a loss if, under any state that it has
// told since the last quiet point, the Service that has the frontend does not serve it.
type guard struct {
	family service.Family
	kernel *memory.Kernel
	outage *outage
	object func(error)

	// mu is held while a command takes effect and is judged. Nobody waits with it, for
	// time would not go on.
	mu sync.Mutex
	// passed is what goes wrong with the command that takes effect.
	passed memory.Fault
	// heard holds the states of each Service since the last quiet point, newest last,
	// and since the time of the newest. Struck are those whose actor is kept from its
	// work, which is its supervisor's to tell.
	heard  map[int][]state
	since  map[int]time.Time
	struck map[int]bool
	// strange is set once a stranger has been at work, until the next quiet point. What
	// comes after it may lack what was damaged, as what was there does.
	strange bool
	hosts   []netip.Addr
	fronts  map[memory.Packet]*front
	// open is since when the aggregator writes, in this process.
	open time.Time
}

var _ iptables.Tool = (*guard)(nil)

// front is a frontend, as the packet that is sent to it has it.
type front struct {
	// owners are all Services that ever named it.
	owners map[int]bool
	// share is how probable it is that the packet reaches an endpoint, and through are
	// the chains on its way; the built-in ones are on everybody's.
	share   float64
	through map[place]bool
	// lost is when it was last seen to be reached no more, damaged whether a stranger
	// may have done that. Told ends the objections about health.
	lost          time.Time
	damaged, told bool
}

func newGuard(family service.Family, kernel *memory.Kernel, outage *outage) *guard {
	g := &guard{
		family: family, kernel: kernel, outage: outage, object: func(error) {},
		heard: map[int][]state{}, since: map[int]time.Time{}, struck: map[int]bool{}, fronts: map[memory.Packet]*front{},
	}
	kernel.SetFaults(func(call memory.Call) memory.Fault {
		switch {
		case strings.HasPrefix(string(call.Input), byHand):
			return memory.Fault{}
		case strings.HasSuffix(call.Command, "-save"):
			return outage.fault(call)
		default:
			return g.passed
		}
	})
	return g
}

// note takes note of what the API says of Service n now.
func (g *guard) note(n int, s state, hosts []netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if all := g.heard[n]; len(all) == 0 || !all[len(all)-1].equal(s) {
		g.heard[n] = append(all, s)
	}
	g.since[n], g.hosts = time.Now(), slices.Clone(hosts)
	view := s.view(keyOf(n))
	for i := range view.Ports[g.family] {
		for _, p := range g.packets(&view.Ports[g.family][i]) {
			if g.fronts[p] == nil {
				g.fronts[p] = &front{owners: map[int]bool{}}
				g.look(g.fronts[p], p)
			}
			g.fronts[p].owners[n] = true
		}
	}
}

// packets gives one to each frontend of a port. Their senders send nothing else.
func (g *guard) packets(port *service.PortView) (all []memory.Packet) {
	add := func(from netip.Addr, in string, to netip.Addr, port uint16, protocol service.Protocol) {
		all = append(all, memory.Packet{
			Src: netip.AddrPortFrom(from, 40000), Dst: netip.AddrPortFrom(to, port), Protocol: protocol, In: in, Out: "eth0",
		})
	}
	add(localPod(g.family, 97), podInterface, port.ClusterIP, port.Port, port.Protocol)
	client := outside(g.family, 12)
	for _, a := range slices.Concat(port.ExternalIPs, port.LoadBalancerVIPs) {
		add(client, "eth0", a, port.Port, port.Protocol)
	}
	if port.NodePort != 0 {
		add(client, "eth0", host(g.family, 2), port.NodePort, port.Protocol)
	}
	return all
}

// strike says that the actor of Service n is kept from its work; of all with the node's
// own.
func (g *guard) strike(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.struck[n] = true
}

// settled says how the kernel has Service n at a quiet point, which may be older than
// what the API says now.
func (g *guard) settled(n int, there, now state) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heard[n] = []state{there, now}
	delete(g.struck, n)
	delete(g.struck, nodeActor)
	g.strange = false
}

// renewed says that another process takes over.
func (g *guard) renewed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = time.Time{}
}

// stranger lets somebody else change the kernel. Who is not served then may lack what
// was damaged, of which the proxy learns with its next audit.
func (g *guard) stranger(do func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.strange = true
	err := do()
	for p, f := range g.fronts {
		before := f.share
		g.look(f, p)
		f.damaged = f.damaged || f.share < before || f.share == 0
	}
	return err
}

// move lets the host change its addresses.
func (g *guard) move(addresses []netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kernel.SetLocal(addresses...)
	for p, f := range g.fronts {
		g.look(f, p)
	}
}

// Restore implements iptables.Tool.
func (g *guard) Restore(ctx context.Context, input []byte) error {
	return g.command(ctx, memory.Call{Command: "iptables-restore", Input: input}, namedIn(input),
		func() error { return g.kernel.Restore(ctx, input) })
}

// Save implements iptables.Tool.
func (g *guard) Save(ctx context.Context, table iptables.Table) ([]byte, error) {
	return g.kernel.Save(ctx, table)
}

// EnsureHook implements iptables.Tool.
func (g *guard) EnsureHook(ctx context.Context, table iptables.Table, chain string, rule []string) error {
	return g.command(ctx, memory.Call{Command: "iptables", Table: table}, []place{{table, chain}},
		func() error { return g.kernel.EnsureHook(ctx, table, chain, rule) })
}

// RemoveHook implements iptables.Tool.
func (g *guard) RemoveHook(ctx context.Context, table iptables.Table, chain string, rule []string) error {
	return g.command(ctx, memory.Call{Command: "iptables", Table: table}, []place{{table, chain}},
		func() error { return g.kernel.RemoveHook(ctx, table, chain, rule) })
}

// command waits as long as the outage wants, and lets a command take effect.
func (g *guard) command(ctx context.Context, call memory.Call, named []place, do func() error) error {
	fault := g.outage.fault(call)
	if fault.Wait != nil {
		select {
		case <-fault.Wait:
		case <-ctx.Done():
		}
		fault.Wait = nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.passed = fault
	err := do()
	g.passed = memory.Fault{}
	g.judge(named)
	return err
}

// judge looks at the frontends whose way leads through chains that a command has named.
func (g *guard) judge(named []place) {
	for p, f := range g.fronts {
		if !slices.ContainsFunc(named, func(at place) bool { return isBuiltin(at.chain) || f.through[at] }) {
			continue
		}
		before := f.share
		steps := g.look(f, p)
		const rounding = 1e-6
		if f.share < before-rounding && !g.asked(p, f) {
			g.object(fmt.Errorf("%v: a write left Services %v served worse: packet %v to %v/%v reached an endpoint with probability %.3f, now %.3f%s",
				g.family, f.numbers(), p.Src, p.Dst, p.Protocol, before, f.share, steps))
		}
	}
}

// look sends the packet, and tells of one of its ways.
func (g *guard) look(f *front, p memory.Packet) string {
	outcomes := g.kernel.Outcomes(p)
	was := f.share
	f.share, f.through = 0, map[place]bool{}
	for _, o := range outcomes {
		if o.Verdict == memory.Delivered {
			f.share += o.Probability
		}
		for _, step := range o.Steps { // TABLE -A CHAIN ... [-j TARGET ...]
			table, rule, _ := strings.Cut(step, " -A ")
			chain, rest, _ := strings.Cut(rule, " ")
			f.through[place{iptables.Table(table), chain}] = true
			if _, to, jumps := strings.Cut(" "+rest, " -j "); jumps {
				to, _, _ = strings.Cut(to, " ")
				f.through[place{iptables.Table(table), to}] = true
			}
		}
	}
	switch {
	case f.share > 0:
		f.lost, f.damaged, f.told = time.Time{}, false, false
	case was > 0 || f.lost.IsZero():
		f.lost = time.Now()
	}
	return steps(outcomes)
}

// asked reports whether the API has asked for a loss: one of those who have the frontend
// would not serve it under one of its states, or nobody has it any more.
func (g *guard) asked(p memory.Packet, f *front) bool {
	named := false
	for n := range f.owners {
		mine, all := 0, 0
		for _, s := range g.heard[n] {
			switch g.fate(p, n, s) {
			case memory.Delivered:
				mine++
			case memory.Untouched:
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

// fate tells what becomes of a packet if there is one Service alone.
func (g *guard) fate(p memory.Packet, n int, s state) memory.Verdict {
	return newJudge(g.family, s.facts, g.hosts, []served{serve(n, s)}).fate(p).verdict
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

// checkHealth objects when a Service that the API wants to be served is not, neither
// convicted nor kept from it by a stranger, and the aggregator has nothing pending. It is
// called every second. HeldBack tells whether rendering fails, or the kernel refuses it.
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
	if !s.OldestPending.IsZero() || s.NodeAtFault || g.strange || g.struck[nodeActor] || now.Sub(g.open) < silenceMax {
		return
	}
	for p, f := range g.fronts {
		if f.share > 0 || f.damaged || f.told || len(f.owners) != 1 || now.Sub(f.lost) < silenceMax {
			continue
		}
		n := f.numbers()[0]
		last := g.heard[n][len(g.heard[n])-1]
		if g.struck[n] || now.Sub(g.since[n]) < silenceMax || last.spec == nil || heldBack(last.spec) ||
			slices.ContainsFunc(s.Quarantined, func(q aggregator.QuarantinedKey) bool { return q.Key == keyOf(n) }) ||
			g.fate(p, n, last) != memory.Delivered {
			continue
		}
		f.told = true
		g.object(fmt.Errorf("%v: health is silent: %v/%v of Service %d has not been in force for %v, and nothing is pending: %+v",
			g.family, p.Dst, p.Protocol, n, now.Sub(f.lost), s))
	}
}

// namedIn gives the chains that an input of iptables-restore names.
func namedIn(input []byte) (all []place) {
	var table iptables.Table
	for lines := bufio.NewScanner(bytes.NewReader(input)); lines.Scan(); {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "*"):
			table = iptables.Table(line[1:])
		case strings.HasPrefix(line, ":"):
			chain, _, _ := strings.Cut(line[1:], " ")
			all = append(all, place{table, chain})
		case strings.HasPrefix(line, "-"):
			if words := strings.SplitN(line, " ", 3); len(words) > 1 {
				all = append(all, place{table, words[1]})
			}
		}
	}
	return all
}
