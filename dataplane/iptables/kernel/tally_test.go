package kernel

import (
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
)

var (
	countedChain = render.ChainID(render.NAT, "KUBE-SVC-AAAAAAAAAAAAAAAA")
	countedPlace = place{endpoint: netip.MustParseAddrPort("10.0.0.5:8080")}
)

// TestReadingsFitGenerations: what is read of a chain is added to what is carried exactly if all its deleted rules are
// in one of them, also when the numbers of generations begin again.
func TestReadingsFitGenerations(t *testing.T) {
	for _, first := range []uint32{1, 0xfff0, 0x7ffffff0, 0xfffffff0} {
		tally, other := newTally(), render.ChainID(render.NAT, "KUBE-SVC-BBBBBBBBBBBBBBBB")
		tally.begin(first)
		now := first
		pass := func(rules ...deleted) { now++; tally.commit(now, true, rules) }
		pass(deleted{countedChain, counter{countedPlace, 5}})
		deletion := now
		for range 40 {
			pass()
		}
		for _, test := range []struct {
			chain      dataplane.ID
			generation uint32
			fits       bool
			sum        uint64
		}{
			{countedChain, now + 1, false, 0}, // its announcements are on the way
			{countedChain, now, true, 7},
			{countedChain, deletion, true, 7},
			{countedChain, deletion - 1, false, 0}, // it has the deleted rule
			{other, deletion - 1, true, 2},
		} {
			sum, fits := tally.plus(test.chain, uint16(test.generation), map[place]uint64{countedPlace: 2})
			if fits != test.fits || sum[countedPlace] != test.sum {
				t.Errorf("%s in generation %d of %d: %v, %d; want %v, %d", test.chain.Name, test.generation-first, now-first, fits, sum[countedPlace], test.fits, test.sum)
			}
		}
		for range 1 << 16 {
			pass()
		}
		if _, fits := tally.plus(countedChain, uint16(now-1), nil); !fits {
			t.Errorf("from %d on: an old deletion seems to be new", first)
		}
	}
}

// TestLegacyReadings: counters of written chains begin again from 0, in whatever order readings and writes are.
func TestLegacyReadings(t *testing.T) {
	tally := newTally()
	batch := &dataplane.Batch{Changes: []dataplane.Change{{ID: countedChain}}}
	read := func(when string, turns, n, want uint64) {
		t.Helper()
		if got := tally.grown(turns, counters{countedChain: {countedPlace: n}})[countedChain][countedPlace]; got != want {
			t.Errorf("%s: %d, want %d", when, got, want)
		}
	}
	write := func(outcome dataplane.Outcome, during func()) {
		tally.rewriting(batch)
		if during != nil {
			during()
		}
		tally.rewritten(batch, &dataplane.Receipt{Outcome: outcome})
	}
	read("at first", 0, 5, 5)
	write(dataplane.Landed, func() { read("during a write", 1, 1, 5) })
	read("begun before a write", 0, 6, 5)
	read("more than before", 2, 8, 13)
	write(dataplane.Rejected, nil)
	read("a write that failed", 4, 9, 14)
	read("another process wrote", 4, 3, 17)
}

// TestTheTallyIsBounded: without readings, and by what exists with them.
func TestTheTallyIsBounded(t *testing.T) {
	const most = 3000
	tally := newTally()
	tally.most = most
	tally.begin(1)
	since := tally.since
	var rules []deleted
	for i := range most + 1 {
		at := place{endpoint: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 80)}
		rules = append(rules, deleted{countedChain, counter{at, 1}})
	}
	tally.commit(2, true, rules[:most/2])
	if tally.size != most/2 || tally.since != since {
		t.Errorf("%d are carried", tally.size)
	}
	tally.prune(2, nil, func(dataplane.ID, place) (place, bool) { return gone, true })
	if n := tally.chains[countedChain].carried[gone]; tally.size != 1 || n != most/2 {
		t.Errorf("%d are carried, with %d connections", tally.size, n)
	}
	tally.commit(3, true, rules)
	if tally.size > 1 || tally.since == since {
		t.Errorf("%d are carried, all since %v", tally.size, tally.since)
	}
	tally.prune(4, nil, func(dataplane.ID, place) (place, bool) { return gone, false })
	if len(tally.chains) != 0 {
		t.Errorf("%d chains", len(tally.chains))
	}
}
