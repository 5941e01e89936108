// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
)

// kernel is the model that writes go to; a receipt tells the truth about it.
type kernel map[dataplane.ID]string

func (k kernel) put(c dataplane.Change) {
	if c.After == nil {
		delete(k, c.ID)
	} else {
		k[c.ID] = c.After.Body
	}
}

// write lands all, some or none of a batch, and reports it fully, partly or
// not at all.
func (k kernel) write(random *rand.Rand, b *dataplane.Batch) dataplane.Receipt {
	if random.IntN(3) == 0 {
		for _, c := range b.Changes {
			k.put(c)
		}
		return landed()
	}
	outcomes := []dataplane.Outcome{dataplane.Busy, dataplane.Unknown, dataplane.Rejected, dataplane.Unsupported}
	r := dataplane.Receipt{Outcome: outcomes[random.IntN(len(outcomes))], Certain: map[dataplane.ID]*dataplane.Object{}}
	for _, c := range b.Changes {
		if random.IntN(2) == 0 {
			k.put(c)
		}
		if random.IntN(2) == 0 {
			r.Certain[c.ID] = nil
			if body, there := k[c.ID]; there {
				r.Certain[c.ID] = &dataplane.Object{ID: c.ID, Body: body}
			}
		}
	}
	return r
}

func (k kernel) read() []dataplane.Object {
	var objects []dataplane.Object
	for id, body := range k {
		objects = append(objects, dataplane.Object{ID: id, Body: body})
	}
	return objects
}

// TestLedger_AnyHistoryConvergesQuick: after any history, planning and confirming reaches the wanted state, and
// planning again is empty. No receipt makes the ledger assume a state that the kernel does not have.
func TestLedger_AnyHistoryConvergesQuick(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		l, k := New(nil, names{}, nil), kernel{}
		k[dataplane.ID{Container: "nat", Name: "left-over"}] = "of an earlier run"
		wanted := map[string]*dataplane.Fragment{}
		for step := range 60 {
			name := fmt.Sprintf("s%d", random.IntN(6))
			switch random.IntN(8) {
			case 0:
				l.Observe(k.read())
			case 1: // somebody else meddles; the audit finds out
				for id := range k {
					delete(k, id)
					break
				}
				l.Observe(k.read())
			case 2:
				l.Hold(key(name))
			case 3:
				l.Release(key(name))
			default:
				f := randomFragment(random, name, uint64(step+1))
				l.Want(f)
				wanted[name] = f
			}
			if b := l.Plan(); b != nil {
				l.Settle(b, k.write(random, b))
			}
			checkKnown(t, seed, l, k)
		}
		for i := range 6 {
			l.Release(key(fmt.Sprintf("s%d", i)))
		}
		l.Observe(k.read())
		if b := l.Plan(); b != nil {
			for _, c := range b.Changes {
				k.put(c)
			}
			l.Settle(b, landed())
		}
		if b := l.Plan(); b != nil {
			t.Fatalf("seed %d: planning again is not empty: %q", seed, changes(b))
		}
		checkWanted(t, seed, wanted, k)
	}
}

func randomFragment(random *rand.Rand, name string, sequence uint64) *dataplane.Fragment {
	var objects []dataplane.Object
	for i := range random.IntN(4) {
		objects = append(objects, chain(fmt.Sprintf("%s-%d", name, i), fmt.Sprint(random.IntN(3))))
	}
	if random.IntN(2) == 0 {
		content := fmt.Sprint("of ", random.IntN(2))
		objects = append(objects, chain("shared "+content, content))
	}
	return fragment(name, sequence, objects...)
}

func checkKnown(t *testing.T, seed uint64, l *Ledger, k kernel) {
	t.Helper()
	for id, e := range l.entries.all() {
		if e.unsure {
			continue
		}
		body, there := k[id]
		if (e.known != nil) != there || (there && e.known.Body != body) {
			t.Fatalf("seed %d: %v known as %+v, the kernel has %q (%v)", seed, id, e.known, body, there)
		}
	}
}

// checkWanted compares the kernel with what is wanted.
func checkWanted(t *testing.T, seed uint64, wanted map[string]*dataplane.Fragment, k kernel) {
	t.Helper()
	want := kernel{}
	for _, f := range wanted {
		for _, o := range f.Objects {
			want[o.ID] = o.Body
		}
	}
	if !maps.Equal(want, k) {
		t.Fatalf("seed %d: want %v; the kernel has %v", seed, want, k)
	}
}
