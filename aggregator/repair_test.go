// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/service"
)

// undone makes an account of missing objects.
func undone(names ...string) *ledger.Undone {
	u := &ledger.Undone{Missing: len(names), Services: 1}
	for _, name := range names {
		u.Objects = append(u.Objects, ledger.UndoneObject{ID: dataplane.ID{Name: name}, Missing: true})
	}
	return u
}

// TestRepairs_SlowDown: repeated repairs of the same object wait for longer and longer pauses. Each step is an audit
// that finds changed objects after an announcement.
func TestRepairs_SlowDown(t *testing.T) {
	const s = time.Second
	type step struct {
		// after is the time since the previous repair ended.
		after   time.Duration
		objects []string
		pause   time.Duration
	}
	x, y, both := []string{"x"}, []string{"y"}, []string{"x", "y"}
	tests := []struct {
		name  string
		steps []step
	}{
		{"the same object again and again", []step{{0, x, 0}, {0, x, s}, {0, x, 2 * s}, {0, x, 4 * s}, {0, x, 8 * s},
			{0, x, 16 * s}, {0, x, 30 * s}, {0, x, 30 * s}}},
		{"it stood in between", []step{{0, x, 0}, {0, x, s}, {2 * s, x, 0}, {0, x, s}}},
		{"it stood for too short a time", []step{{0, x, 0}, {0, x, s}, {2*s - 1, x, 2 * s}}},
		{"another object", []step{{0, x, 0}, {0, x, s}, {0, x, 2 * s}, {0, y, 0}, {0, x, 4 * s}, {0, y, 0}, {0, y, s}}},
		{"another object with the same", []step{{0, x, 0}, {0, x, s}, {0, both, 0}, {0, both, s}, {0, both, 2 * s}, {0, x, 2 * s}}},
		{"a part of what was repaired", []step{{0, both, 0}, {0, x, 0}, {0, y, 0}, {0, x, s}}},
		{"in changing company", []step{{0, x, 0}, {0, both, 0}, {0, []string{"x", "z"}, 0}, {0, []string{"x", "y", "z"}, 0},
			{0, []string{"x", "y"}, s}, {0, x, 2 * s}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, now := newRepairs(), time.Unix(1000, 0)
			for i, step := range tt.steps {
				now = now.Add(step.after)
				r.announced(now, dataplane.ForeignProcess{})
				r.auditing()
				began := r.found(now, time.Millisecond, &ledger.Drift{Undone: undone(step.objects...)})
				if began == nil || began.Pause != step.pause || (began.Again == 0) != (step.pause == 0) {
					t.Fatalf("step %d: %+v, want a pause of %v", i, began, step.pause)
				}
				until, held := r.held(now)
				if held != (step.pause > 0) || held && !until.Equal(now.Add(step.pause)) {
					t.Fatalf("step %d: held %v until %v", i, held, until)
				}
				now = now.Add(step.pause)
				if _, held := r.held(now); held {
					t.Fatalf("step %d: held after the pause", i)
				}
				if told := r.repairDone(now); told == nil || told.Took != step.pause || told.Repairs != 1 || told.Objects != len(step.objects) {
					t.Fatalf("step %d: repaired: %+v", i, told)
				}
			}
			if told := r.repairDone(now); told != nil {
				t.Errorf("repaired without a repair: %+v", told)
			}
		})
	}
}

// TestRepairs_NewObjectEndsWait: a waiting repair starts immediately when an audit finds another changed object.
func TestRepairs_NewObjectEndsWait(t *testing.T) {
	r, now := newRepairs(), time.Unix(1000, 0)
	find := func(u *ledger.Undone) *RepairBegan {
		r.announced(now, dataplane.ForeignProcess{PID: 7, Command: "rival"})
		r.auditing()
		return r.found(now, time.Millisecond, &ledger.Drift{Undone: u})
	}
	find(undone("x"))
	r.repairDone(now)
	find(undone("x"))
	if find(nil) != nil || !r.fruitless {
		t.Errorf("an audit that found nothing new is told, or is no rest worth (%v)", r.fruitless)
	}
	if _, held := r.held(now); !held {
		t.Fatal("it does not wait")
	}
	if began := find(undone("y")); began == nil || began.Again != 0 || r.fruitless || began.By.PID != 7 {
		t.Errorf("%+v, fruitless %v", began, r.fruitless)
	}
	if _, held := r.held(now); held {
		t.Error("it waits")
	}
	now = now.Add(time.Minute)
	if told := r.repairDone(now); told == nil || told.Repairs != 2 || told.Objects != 2 || told.Took != time.Minute {
		t.Errorf("repaired: %+v", told)
	}
}

// TestRepairs_NameLatestForeignProcess: a repair names the last announced process, also one that was announced during
// the previous audit, but none that was announced before it.
func TestRepairs_NameLatestForeignProcess(t *testing.T) {
	r, now := newRepairs(), time.Unix(1000, 0)
	r.announced(now, dataplane.ForeignProcess{PID: 1})
	r.auditing()
	r.announced(now.Add(time.Second), dataplane.ForeignProcess{PID: 2})
	if began := r.found(now.Add(2*time.Second), 0, &ledger.Drift{Undone: undone("x")}); began.By.PID != 2 {
		t.Errorf("by %+v, want 2", began.By)
	}
	r.repairDone(now.Add(3 * time.Second))
	r.auditing()
	if began := r.found(now.Add(4*time.Second), 0, &ledger.Drift{Undone: undone("y")}); began.By.PID != 2 {
		t.Errorf("by %+v, want 2", began.By)
	}
	r.auditing()
	if began := r.found(now.Add(5*time.Second), 0, &ledger.Drift{Undone: undone("z")}); began.By != (dataplane.ForeignProcess{}) {
		t.Errorf("by %+v, want nobody", began.By)
	}
}

// TestRepairs_FlushedRuleset: more missing objects than are listed count as one object, so that repairs slow down for a
// script that flushes the ruleset in a loop, too.
func TestRepairs_FlushedRuleset(t *testing.T) {
	r, now := newRepairs(), time.Unix(1000, 0)
	all := &ledger.Undone{Missing: ledger.UndoneMax + 1, Objects: undone("x").Objects}
	for i, want := range []time.Duration{0, time.Second, 2 * time.Second} {
		r.announced(now, dataplane.ForeignProcess{})
		r.auditing()
		if began := r.found(now, 0, &ledger.Drift{Undone: all}); began.Pause != want {
			t.Errorf("flush %d: a pause of %v, want %v", i, began.Pause, want)
		}
		now = now.Add(want)
		r.repairDone(now)
	}
}

// TestRepairs_MarksAreBounded: the number of marks is limited, and marks of objects that stayed repaired are forgotten.
func TestRepairs_MarksAreBounded(t *testing.T) {
	r, now := newRepairs(), time.Unix(1000, 0)
	for i := range 2 * marksMax / ledger.UndoneMax {
		names := make([]string, ledger.UndoneMax)
		for j := range names {
			names[j] = fmt.Sprint(i, " ", j)
		}
		r.announced(now, dataplane.ForeignProcess{})
		r.auditing()
		r.found(now, 0, &ledger.Drift{Undone: undone(names...)})
		if len(r.marks) > marksMax {
			t.Fatalf("%d marks", len(r.marks))
		}
	}
	r.repairDone(now)
	now = now.Add(repairQuiet)
	r.announced(now, dataplane.ForeignProcess{})
	r.auditing()
	r.found(now, 0, &ledger.Drift{Undone: undone("x")})
	if len(r.marks) != 2 {
		t.Errorf("%d marks after a quiet time, want those of an object and of its set", len(r.marks))
	}
}

func TestDescribe(t *testing.T) {
	owner := service.Key{Namespace: "ns1", Name: "dns"}
	tests := []struct {
		object ledger.UndoneObject
		want   string
	}{
		{ledger.UndoneObject{ID: dataplane.ID{Container: "chain", Name: "services"}, Owner: service.Node}, "different: chain services"},
		{ledger.UndoneObject{ID: dataplane.ID{Container: "nat", Name: "KUBE-SVC-X"}, Owner: owner, Missing: true}, "missing: nat KUBE-SVC-X (ns1/dns)"},
		{ledger.UndoneObject{ID: dataplane.ID{Container: "@frontends", Name: "\x0a\x60"}, Owner: owner, Unwanted: true,
			Frontend: service.Frontend{Addr: netip.MustParseAddr("10.96.0.10"), Port: 53, Protocol: service.UDP}},
			"unwanted: 10.96.0.10:53/udp in @frontends (ns1/dns)"},
		{ledger.UndoneObject{ID: dataplane.ID{Container: "@hairpins", Name: "\x0a\x00"}, Owner: service.Node}, "different: an entry of @hairpins"},
	}
	for _, tt := range tests {
		if got := describe(&tt.object); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
	u := undone("a", "b", "c", "d", "e", "f")
	u.Objects[5].Owner = owner
	if got := examples(u); len(got) != examplesMax || got[0] != "missing:  f (ns1/dns)" {
		t.Errorf("examples %q", got)
	}
}

// rival is one of two proxies with different opinions on one kernel that announces
// what either does to the other.
type rival struct {
	*model
	other  atomic.Pointer[Aggregator]
	writes atomic.Int32
	reads  atomic.Int32
}

func (r *rival) Write(ctx context.Context, b *dataplane.Batch) dataplane.Receipt {
	r.writes.Add(1)
	time.Sleep(time.Millisecond)
	receipt := r.model.Write(ctx, b)
	if other := r.other.Load(); other != nil {
		other.AuditSoon(dataplane.ForeignProcess{PID: 8, Command: "rival"})
	}
	return receipt
}

func (r *rival) Read(ctx context.Context) ([]dataplane.Object, error) {
	r.reads.Add(1)
	time.Sleep(time.Millisecond)
	return r.model.Read(ctx)
}

// TestAggregator_TwoOverwriteEachOther: two aggregators that overwrite each other's objects slow down to a few audits
// and writes. Without pauses, each made 2,470 audits in 5 s.
func TestAggregator_TwoOverwriteEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{objects: map[dataplane.ID]string{}}
		var rivals [2]*rival
		var all [2]*Aggregator
		var warned [2]atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		for i := range rivals {
			rivals[i] = &rival{model: m}
			a, err := New(Config{Domain: "d", Writer: contract(rivals[i]), Listen: func(e Event) {
				if began, ok := e.(RepairBegan); ok && began.By.Command == "rival" {
					warned[i].Add(1)
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			all[i] = a
			go a.Run(ctx)
			for j := range 100 {
				f := dataplane.NewFragment(service.Key{Namespace: "ns", Name: fmt.Sprint(j)},
					[]dataplane.Object{{ID: dataplane.ID{Name: fmt.Sprint(j)}, Body: fmt.Sprint(i)}})
				f.Revision = service.Revision{Incarnation: 1, Sequence: 1}
				a.Submit(f)
			}
		}
		defer func() { cancel(); synctest.Wait() }()
		rivals[0].other.Store(all[1])
		rivals[1].other.Store(all[0])
		all[0].Prime(nil)
		all[1].Prime(nil)
		time.Sleep(5 * time.Second)
		for i, r := range rivals {
			t.Logf("in 5 s: %d audits, %d writes, %d warnings", r.reads.Load(), r.writes.Load(), warned[i].Load())
			if r.reads.Load() > 20 || r.writes.Load() > 6 || warned[i].Load() == 0 || warned[i].Load() > 6 {
				t.Errorf("want at most 20 audits, 6 writes and 1 to 6 warnings")
			}
		}
		time.Sleep(5 * time.Minute)
		for i, r := range rivals {
			t.Logf("in 5 min: %d audits, %d writes, %d warnings", r.reads.Load(), r.writes.Load(), warned[i].Load())
			if r.writes.Load() > 30 {
				t.Errorf("%d writes in five minutes, want at most 30", r.writes.Load())
			}
		}
	})
}

// TestRepairs_UnfinishedRepairMemoryBounded: while a repair stays open, for example during a long bisection, thousands
// of audits that find the same objects need no more memory.
func TestRepairs_UnfinishedRepairMemoryBounded(t *testing.T) {
	var names []string
	for i := range ledger.UndoneMax {
		names = append(names, fmt.Sprint(i))
	}
	r, now, found := newRepairs(), time.Unix(1000, 0), undone(names...)
	audit := func(times int) (bytes uint64) {
		for range times {
			now = now.Add(30 * time.Second)
			r.announced(now, dataplane.ForeignProcess{})
			r.auditing()
			r.found(now, time.Millisecond, &ledger.Drift{Undone: found})
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := audit(100)
	if after := audit(3000); after > before+4<<20 {
		t.Errorf("3,000 audits during one repair take %d KiB", (after-before)>>10)
	}
	if done := r.repairDone(now); done == nil || done.Repairs != 3100 || len(r.marks) == 0 {
		t.Errorf("%+v, %d marks, want the end of 3,100 repairs, and marks", done, len(r.marks))
	}
	for _, m := range r.marks {
		is(t, "end of a repair", m.repaired, now)
	}
}
