package aggregator

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

func keys(count int) []service.Key {
	var ks []service.Key
	for i := range count {
		ks = append(ks, service.Key{Namespace: "ns", Name: fmt.Sprintf("s%04d", i)})
	}
	return ks
}

// try carries a search out against a kernel that refuses the bad keys.
func try(s *search, first step, bad func(service.Key) bool) (writes int, landed map[service.Key]bool, last step) {
	held, landed := map[service.Key]bool{}, map[service.Key]bool{}
	for current := first; ; {
		for _, k := range current.hold {
			held[k] = true
		}
		for _, k := range current.release {
			held[k] = false
		}
		if current.done {
			return writes, landed, current
		}
		writes++
		refused := false
		for k, h := range held {
			refused = refused || (!h && !landed[k] && bad(k))
		}
		if refused {
			current = s.refused("no such thing")
			continue
		}
		for k, h := range held {
			landed[k] = landed[k] || !h
		}
		current = s.landed()
	}
}

func TestOneCulpritAmongManyIsFoundInLogarithmicTime(t *testing.T) {
	for _, count := range []int{1, 2, 3, 100, 5000} {
		ks := keys(count)
		for _, culprit := range []service.Key{ks[0], ks[count/2], ks[count-1]} {
			s, first := newSearch(ks, nil, "refused")
			writes, landed, last := try(s, first, func(k service.Key) bool { return k == culprit })
			if len(s.guilty) != 1 || s.guilty[0].key != culprit || last.nodeAtFault {
				t.Fatalf("of %d: guilty %v, culprit %v", count, s.guilty, culprit)
			}
			if len(landed) < count-1 {
				t.Fatalf("of %d: only %d landed", count, len(landed))
			}
			if bound := 2*bits.Len(uint(count)) + 4; writes > bound {
				t.Fatalf("of %d: %d writes, want at most %d", count, writes, bound)
			}
		}
	}
}

func TestASuspectIsTriedAlone(t *testing.T) {
	ks := keys(1000)
	s, first := newSearch(ks, ks[500:501], "refused")
	writes, _, _ := try(s, first, func(k service.Key) bool { return k == ks[500] })
	if writes != 3 || len(s.guilty) != 1 { // control, the others, the suspect
		t.Fatalf("%d writes, guilty %v", writes, s.guilty)
	}
	// An innocent suspect is not convicted.
	s, first = newSearch(ks, ks[500:501], "refused")
	try(s, first, func(k service.Key) bool { return k == ks[7] })
	if len(s.guilty) != 1 || s.guilty[0].key != ks[7] {
		t.Fatalf("guilty %v", s.guilty)
	}
}

func TestARefusedScaffoldConvictsNobody(t *testing.T) {
	ks := keys(10)
	s, first := newSearch(append(ks, service.Node), nil, "refused")
	if !first.control || len(first.hold) != 10 {
		t.Fatalf("first step %+v", first)
	}
	last := s.refused("no nat table")
	if !last.done || !last.nodeAtFault || len(last.release) != 10 || len(s.guilty) != 0 {
		t.Fatalf("%+v, guilty %v", last, s.guilty)
	}
}

// Whatever the culprits: the search ends, everybody innocent who was tried has
// landed, every culprit is convicted, and the refusals stay within the budget.
func TestAnySetOfCulpritsQuick(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 2))
		ks := keys(1 + random.IntN(60))
		bad := map[service.Key]bool{}
		for range random.IntN(6) {
			bad[ks[random.IntN(len(ks))]] = true
		}
		s, first := newSearch(ks, ks[:random.IntN(2)], "refused")
		writes, landed, _ := try(s, first, func(k service.Key) bool { return bad[k] })
		if writes > 200 {
			t.Fatalf("seed %d: %d writes", seed, writes)
		}
		for _, k := range ks {
			convicted := slices.ContainsFunc(s.guilty, func(c conviction) bool { return c.key == k })
			if convicted == landed[k] || (bad[k] && !convicted) {
				t.Fatalf("seed %d: %v: bad %v, convicted %v, landed %v", seed, k, bad[k], convicted, landed[k])
			}
		}
	}
}

func TestAbandonReleasesWhoeverIsNotConvicted(t *testing.T) {
	ks := keys(4)
	s, _ := newSearch(ks, nil, "refused")
	s.landed() // control; the first half is out
	if last := s.abandon(); !last.done || len(last.release) != 2 {
		t.Fatalf("%+v", last)
	}
}

// Those who are proven to be refused by themselves are tried alone, and nobody else
// is held meanwhile.
func TestProvenCulpritsConcernNobodyElse(t *testing.T) {
	ks := keys(3)
	s, first := newRetrial(ks, "refused")
	if first.control || !slices.Equal(first.hold, ks) || len(first.release) != 1 {
		t.Fatalf("first step %+v, want all held and one released", first)
	}
	mended := ks[1]
	writes, landed, last := try(s, first, func(k service.Key) bool { return k != mended })
	var guilty []service.Key
	for _, c := range s.guilty {
		guilty = append(guilty, c.key)
	}
	slices.SortFunc(guilty, service.Key.Compare)
	if !slices.Equal(guilty, []service.Key{ks[0], ks[2]}) || !landed[mended] || last.nodeAtFault || writes != 3 {
		t.Errorf("guilty %v, landed %v, %d writes, last %+v", guilty, landed, writes, last)
	}
}

// Many who are refused at once may share a reason that is not theirs.
func TestManyProvenCulpritsBeginWithAControl(t *testing.T) {
	ks := keys(100)
	for count, control := range map[int]bool{1: false, retrialMax: false, retrialMax + 1: true} {
		_, first := searchAfter(dataplane.Receipt{Suspects: ks[:count], Proven: true}, ks, "refused")
		if first.control != control {
			t.Errorf("%d suspects: control %t, want %t", count, first.control, control)
		}
	}
	if _, first := searchAfter(dataplane.Receipt{Suspects: ks[:1]}, ks, "refused"); !first.control {
		t.Error("a mere hint is taken for proof")
	}
}
