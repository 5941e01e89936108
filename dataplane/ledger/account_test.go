// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// TestAccount_StateOfKey: Account reports whether a Service is known, pending, applied or held, and which of its
// objects differ.
func TestAccount_StateOfKey(t *testing.T) {
	l := New(nil, names{}, nil)
	if a := l.Account(key("a"), 0, 9); a.Known {
		t.Errorf("an account of a key that is unknown: %+v", a)
	}
	l.Want(fragment("a", 1, chain("x", "1"), chain("y", "1")))
	if a := l.Account(key("a"), 0, 9); !a.Known || !a.Pending || a.Held || a.Latest.Sequence != 1 || a.Applied != (service.Revision{}) ||
		len(a.Objects) != 2 || !a.Objects[0].Differs || a.Objects[0].Object.ID.Name != "x" {
		t.Errorf("before the first write: %+v", a)
	}
	l.Settle(l.Plan(), landed())
	if a := l.Account(key("a"), 0, 9); a.Pending || a.Applied.Sequence != 1 || a.Objects[0].Differs || a.Objects[1].Differs {
		t.Errorf("applied: %+v", a)
	}
	l.Want(fragment("a", 2, chain("x", "1"), chain("y", "2")))
	l.Hold(key("a"))
	if a := l.Account(key("a"), 0, 9); !a.Held || a.Latest.Sequence != 2 || a.Applied.Sequence != 1 || a.Objects[1].Object.Body != "1" {
		t.Errorf("held: %+v", a)
	}
	if l.Batches() != 1 {
		t.Errorf("%d batches", l.Batches())
	}
}

// TestBatches_CountWrites: Batches counts written batches only. A fragment without a difference, such as that of the
// other IP family, is settled without a write.
func TestBatches_CountWrites(t *testing.T) {
	l := New(nil, names{}, nil)
	for revision := range uint64(5) {
		l.Want(fragment("a", revision+1, chain("x", "1")))
		l.Want(fragment("b", revision+1))
		l.Settle(l.Plan(), landed())
	}
	if l.Batches() != 1 || l.Stats().Pending != 0 {
		t.Errorf("%d batches, %d pending; want 1 and 0", l.Batches(), l.Stats().Pending)
	}
}

// TestAccount_NamesFrontendOwner: Account names the Service that owns a frontend for each object that another Service
// lost with it.
func TestAccount_NamesFrontendOwner(t *testing.T) {
	l := New(nil, names{}, owners{1: "owner"}.of)
	l.Want(fragment("other", 1, served(1, "other"), slot(1, 0, "other"), served(2, "other"), hairpin()))
	l.Want(fragment("owner", 1, served(1, "owner"), hairpin()))
	l.Settle(l.Plan(), landed())
	lost, had := 0, 0
	for _, h := range l.Account(key("other"), 0, 9).Objects {
		switch {
		case h.By == key("owner") && h.Differs && h.Frontend.Addr.String() == "192.0.2.1":
			lost++
		case h.By == (service.Key{}) && !h.Differs:
			had++
		default:
			t.Errorf("%+v", h)
		}
	}
	if lost != 2 || had != 2 {
		t.Errorf("%d objects lost, %d had", lost, had)
	}
}

// TestAccount_CostBoundedByLimit: the cost of Account depends on its limit, and not on the number of other Services or
// on the size of the Service beyond the limit.
func TestAccount_CostBoundedByLimit(t *testing.T) {
	for _, others := range []int{1, 10_000} {
		l := New(nil, names{}, nil)
		for i := range others {
			l.Want(fragment(fmt.Sprint("other", i), 1, chain(fmt.Sprint("o", i), "1")))
		}
		var objects []dataplane.Object
		for i := range 2000 {
			objects = append(objects, chain(fmt.Sprint("x", i), "1"))
		}
		l.Want(fragment("large", 1, objects...))
		l.steps = 0
		a := l.Account(key("large"), 0, 500)
		if l.steps != 500 || len(a.Objects) != 500 || a.Omitted != 1500 {
			t.Errorf("among %d: %d steps, %d objects, %d omitted", others, l.steps, len(a.Objects), a.Omitted)
		}
	}
}

// TestAccount_Append: Append joins two parts of an account of the same revision, and rejects a part of another
// revision.
func TestAccount_Append(t *testing.T) {
	l := New(nil, names{}, nil)
	l.Want(fragment("a", 1, chain("x", "1"), chain("y", "1"), chain("z", "1")))
	first := l.Account(key("a"), 0, 2)
	second := l.Account(key("a"), 2, 2)
	if first.Omitted != 1 || !first.Append(&second) || len(first.Objects) != 3 || first.Omitted != 0 {
		t.Errorf("%+v", first)
	}
	l.Want(fragment("a", 2, chain("x", "1")))
	late := l.Account(key("a"), 2, 2)
	if first.Append(&late) || len(late.Objects) != 0 {
		t.Errorf("objects of two revisions are mixed: %+v", first)
	}
}

func BenchmarkAccount(b *testing.B) {
	l := New(nil, names{}, nil)
	var objects []dataplane.Object
	for i := range 2000 {
		objects = append(objects, chain(fmt.Sprint("x", i), "1"))
	}
	l.Want(fragment("large", 1, objects...))
	for b.Loop() {
		l.Account(key("large"), 0, 500)
	}
}
