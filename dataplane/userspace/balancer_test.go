// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/slots"
	"github.com/sluice-proxy/sluice/service"
)

var (
	a, b, c = at("10.1.0.1:80"), at("10.1.0.2:80"), at("10.1.0.3:80")
	d       = at("10.1.0.4:80")
	client  = ip("192.0.2.1")
)

const never = time.Hour

func here(work func()) { work() }

// balance returns a balancer of a Service port.
func balance(t *Table) *balancer { return balanceFor(NewRegistry(Bounds{}), portID, t, never) }

var portID = PortID{Service: service.Key{Namespace: "ns", Name: "web"}, Name: "http"}

func balanceFor(r *Registry, id PortID, t *Table, drain time.Duration) *balancer {
	return newBalancer(r, id, t, service.TCP, drain, here)
}

// connect opens a connection of a client.
func (b *balancer) connect(client netip.Addr, to netip.AddrPort, cut func()) (ended func()) {
	return b.Connected(&relay.Connection{Client: netip.AddrPortFrom(client, 40000), Target: to, Began: time.Now(), Cut: cut})
}

func firsts(x *balancer, client netip.Addr, n int) map[netip.AddrPort]int {
	got := map[netip.AddrPort]int{}
	for range n {
		got[x.Targets(netip.AddrPortFrom(client, 40000))[0]]++
	}
	return got
}

// TestBalancer_RoundRobin: clients are distributed round-robin, with a limited number of endpoints to try.
func TestBalancer_RoundRobin(t *testing.T) {
	x := balance(&Table{To: []netip.AddrPort{a, b, c, d}})
	for endpoint, n := range firsts(x, client, 40) {
		if n != 10 {
			t.Errorf("%v got %d of 40", endpoint, n)
		}
	}
	for range 4 {
		got := x.Targets(netip.AddrPortFrom(client, 40000))
		if len(slices.Compact(slices.SortedFunc(slices.Values(got), netip.AddrPort.Compare))) != triesMax {
			t.Errorf("to try: %v, want %d", got, triesMax)
		}
	}
}

// TestBalancer_FailingEndpointsLast: an endpoint that failed twice is tried last, until it accepts or for a limited
// time.
func TestBalancer_FailingEndpointsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := balance(&Table{To: []netip.AddrPort{a, b, c}})
		x.Failed(a, nil, true)
		if got := firsts(x, client, 30); got[a] != 10 {
			t.Errorf("one failure: %v", got)
		}
		x.Failed(a, nil, true)
		if got := firsts(x, client, 30); got[b] != 15 || got[c] != 15 {
			t.Errorf("two failures: %v", got)
		}
		if got := x.Targets(netip.AddrPortFrom(client, 40000)); got[2] != a {
			t.Errorf("to try: %v, want %v last", got, a)
		}
		x.connect(client, a, nil)()
		if got := firsts(x, client, 30); got[a] != 10 {
			t.Errorf("it has accepted: %v", got)
		}
		x.Failed(a, nil, true)
		x.Failed(a, nil, true)
		time.Sleep(avoidFor)
		if got := firsts(x, client, 30); got[a] != 10 {
			t.Errorf("after a while: %v", got)
		}
		for _, e := range []netip.AddrPort{a, b, c} {
			x.Failed(e, nil, true)
			x.Failed(e, nil, true)
		}
		if got := x.Targets(netip.AddrPortFrom(client, 40000)); len(got) != 3 {
			t.Errorf("all fail: %v", got)
		}
	})
}

func TestBalancer_Affinity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &Table{Affinity: 10, To: []netip.AddrPort{a, b, c}}
		x := balance(table)
		had := x.Targets(netip.AddrPortFrom(client, 40000))[0]
		defer x.connect(client, had, nil)()
		time.Sleep(9 * time.Second)
		if got := firsts(x, client, 30); got[had] != 30 {
			t.Errorf("within the time: %v, want %v", got, had)
		}
		time.Sleep(2 * time.Second)
		if got := firsts(x, client, 30); got[had] != 10 {
			t.Errorf("after it: %v", got)
		}
		x.connect(client, had, nil)()
		x.use(&Table{Affinity: 10, To: slices.DeleteFunc(slices.Clone(table.To), func(e netip.AddrPort) bool { return e == had })})
		if got := firsts(x, client, 30); got[had] != 0 {
			t.Errorf("it has left: %v", got)
		}
		x.use(table)
		if got := firsts(x, client, 30); got[had] != 30 {
			t.Errorf("it is back: %v, want %v", got, had)
		}
		x.Failed(had, nil, true)
		x.Failed(had, nil, true)
		if got := x.Targets(netip.AddrPortFrom(client, 40000)); got[0] == had || got[2] != had {
			t.Errorf("it fails: %v", got)
		}
	})
}

// TestBalancer_AffinityBounded: the number of clients remembered for affinity is limited.
func TestBalancer_AffinityBounded(t *testing.T) {
	x := balance(&Table{Affinity: 10800, To: []netip.AddrPort{a}})
	from := ip("10.0.0.0")
	for range clientsMax + 10 {
		x.connect(from, a, nil)()
		from = from.Next()
	}
	if len(x.port.clients.byClient) != clientsMax {
		t.Errorf("%d clients are remembered, want %d", len(x.port.clients.byClient), clientsMax)
	}
}

// TestBalancer_Drain: connections of a removed endpoint are cut at the drain deadline, unless the endpoint is added
// again before.
func TestBalancer_Drain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := balanceFor(NewRegistry(Bounds{}), portID, &Table{To: []netip.AddrPort{a, b}}, time.Minute)
		cut := map[netip.AddrPort]*atomic.Int32{a: {}, b: {}}
		var ended []func()
		for _, e := range []netip.AddrPort{a, a, b} {
			ended = append(ended, x.connect(client, e, func() { cut[e].Add(1) }))
		}
		x.use(&Table{To: []netip.AddrPort{b}})
		time.Sleep(30 * time.Second)
		x.use(&Table{To: []netip.AddrPort{a, b}})
		time.Sleep(time.Hour)
		if synctest.Wait(); cut[a].Load()+cut[b].Load() != 0 {
			t.Fatalf("cut: %d of a and %d of b", cut[a].Load(), cut[b].Load())
		}
		x.use(&Table{})
		ended[0]()
		time.Sleep(59 * time.Second)
		if synctest.Wait(); cut[a].Load()+cut[b].Load() != 0 {
			t.Error("cut before the deadline")
		}
		time.Sleep(time.Second)
		if synctest.Wait(); cut[a].Load() != 1 || cut[b].Load() != 1 {
			t.Errorf("cut: %d of a and %d of b, want one each", cut[a].Load(), cut[b].Load())
		}
		ended[1]()
		ended[2]()
		if len(x.known) != 0 {
			t.Errorf("remembered: %v", x.known)
		}
	})
}

// TestBalancer_ServiceDrainDeadline: the drain deadline of the Service counts, also if it changes while connections
// drain.
func TestBalancer_ServiceDrainDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := func(d time.Duration) service.Drain { return service.Drain{Limited: true, After: d} }
		x := balanceFor(NewRegistry(Bounds{}), portID, &Table{To: []netip.AddrPort{a, b}, Drain: in(time.Minute)}, never)
		cut := map[netip.AddrPort]*atomic.Int32{a: {}, b: {}}
		for _, e := range []netip.AddrPort{a, b} {
			x.connect(client, e, func() { cut[e].Add(1) })
		}
		expect := func(when string, ofA, ofB int32) {
			if synctest.Wait(); cut[a].Load() != ofA || cut[b].Load() != ofB {
				t.Errorf("%s: cut %d of a and %d of b, want %d and %d", when, cut[a].Load(), cut[b].Load(), ofA, ofB)
			}
		}
		x.use(&Table{To: []netip.AddrPort{b}, Drain: in(time.Minute)})
		time.Sleep(10 * time.Second)
		x.use(&Table{To: []netip.AddrPort{b}, Drain: in(30 * time.Second)})
		time.Sleep(19 * time.Second)
		expect("after 29 s", 0, 0)
		time.Sleep(time.Second)
		expect("after 30 s", 1, 0)
		x.retire()
		time.Sleep(30 * time.Second)
		expect("30 s after the end of the listener", 1, 1)
	})
}

// TestFilter_MatchesTable compares the socket filter, run as the kernel would run it, with the choice of endpoints.
func TestFilter_MatchesTable(t *testing.T) {
	some := []netip.AddrPort{a}
	for _, family := range service.Families {
		ranges := service.PerFamily[[]string]{
			{"10.0.0.0/8", "192.0.2.1/32", "203.0.113.128/25", "172.16.0.0/12"},
			{"fd00::/8", "2001:db8::1/128", "2001:db8:1::/33", "2001:db8:2::/64", "2001:db8:3::/97"},
		}[family]
		var all []netip.Prefix
		for _, r := range ranges {
			all = append(all, prefix(r))
		}
		for i, table := range []*Table{
			{To: some}, {}, {Near: all, NearTo: some}, {Allowed: all, To: some},
			{Denied: all[:2], To: some}, {Allowed: all, Denied: all[1:2], Near: all[1:], NearTo: some, To: some},
			{Denied: []netip.Prefix{netip.PrefixFrom(all[0].Addr(), 0).Masked()}, To: some},
			{Allowed: all[:2], Near: all[1:], NearTo: some}, {Allowed: all, Near: all[1:], NearTo: some, To: some},
		} {
			for _, r := range all {
				last := lastOf(r)
				for _, from := range []netip.Addr{r.Addr(), r.Addr().Prev(), last, last.Next()} {
					want := len(table.targets(from)) > 0
					if got := passes(t, table.filter(), from); got != want {
						t.Errorf("table %d: %v passes: %v, want %v", i, from, got, want)
					}
				}
			}
		}
	}
}

func lastOf(r netip.Prefix) netip.Addr {
	bytes := r.Addr().AsSlice()
	for bit := r.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return addr
}

// passes runs a filter on a packet that begins with its IP header.
func passes(t *testing.T, f []unix.SockFilter, from netip.Addr) bool {
	t.Helper()
	if f == nil {
		return true
	}
	packet := make([]byte, 64)
	if from.Is4() {
		copy(packet[12:], from.AsSlice())
	} else {
		copy(packet[8:], from.AsSlice())
	}
	var program []bpf.Instruction
	for _, i := range f {
		if i.Code == unix.BPF_LD|unix.BPF_W|unix.BPF_ABS {
			i.K -= networkHeader
		}
		program = append(program, bpf.RawInstruction{Op: i.Code, Jt: i.Jt, Jf: i.Jf, K: i.K}.Disassemble())
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	n, err := vm.Run(packet)
	if err != nil {
		t.Fatal(err)
	}
	return n > 0
}

// TestFilter_TooLongLeftToBalancer: a table with too many ranges for the kernel has no socket filter; the balancer
// checks its ranges.
func TestFilter_TooLongLeftToBalancer(t *testing.T) {
	var many []netip.Prefix
	for from := ip("10.0.0.0"); len(many) < filterMax; from = from.Next() {
		many = append(many, single(from))
	}
	if (&Table{Allowed: many, To: []netip.AddrPort{a}}).filter() != nil {
		t.Error("a filter is too long")
	}
	if len((&Table{Allowed: many[:250], To: []netip.AddrPort{a}}).filter()) == 0 {
		t.Error("250 ranges have no filter")
	}
}

// TestBalancer_HashMatchesKernel: with hashing, a client gets the endpoint that nftables mode chooses (see package
// slots). Only failing endpoints are replaced by the next ones.
func TestBalancer_HashMatchesKernel(t *testing.T) {
	const seed = 99
	for _, by := range []service.Balancing{service.SourceHash, service.ConnectionHash} {
		table := &Table{By: by, Seed: seed, To: []netip.AddrPort{a, b, c, d}}
		x, again := balance(table), balance(table)
		order := slots.Table([]service.Endpoint{{AddrPort: a}, {AddrPort: b}, {AddrPort: c}, {AddrPort: d}}, true, false)
		for port := range uint16(200) {
			from := netip.AddrPortFrom(client, port+1)
			key := from
			if by == service.SourceHash {
				key = netip.AddrPortFrom(client, 0)
			}
			want := table.To[order[slots.Slot(key, len(order), seed)]]
			if got := x.Targets(from); got[0] != want || !slices.Equal(got, again.Targets(from)) {
				t.Fatalf("%v: %v goes to %v, want %v first", by, from, got, want)
			}
		}
		first := x.Targets(netip.AddrPortFrom(client, 1))
		for range failuresMax {
			x.Failed(first[0], errors.New("refused"), true)
		}
		if got := x.Targets(netip.AddrPortFrom(client, 1)); got[0] != first[1] {
			t.Errorf("%v: %v fails, and the client gets %v", by, first, got)
		}
	}
}

// TestBalancer_WeightedTurns: a body contains the weights, and the turns follow them.
func TestBalancer_WeightedTurns(t *testing.T) {
	table := &Table{To: []netip.AddrPort{a, b, c}, Weights: map[netip.AddrPort]uint16{b: 3, c: 6}}
	parsed, err := parseTable(table.body())
	if err != nil || !maps.Equal(parsed.Weights, table.Weights) {
		t.Fatal(parsed, err)
	}
	if got := firsts(balance(parsed), client, 100); got[a] != 10 || got[b] != 30 || got[c] != 60 {
		t.Errorf("%v", got)
	}
}
