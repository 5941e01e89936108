package ledger

import (
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// TestWhatAHeldServiceGaveUp: an older Service gives up a frontend in a revision that the kernel refuses,
// and a younger one gets it, in whatever order the ledger learns that. If the older one wants it again, it
// wins again, and it keeps what nobody else wants.
func TestWhatAHeldServiceGaveUp(t *testing.T) {
	older := func(sequence uint64, objects ...dataplane.Object) *dataplane.Fragment {
		return fragment("old", 0, sequence, append(objects, chain("o", "refused"))...)
	}
	young := fragment("young", 5, 1, vip("young"))
	for name, tt := range map[string]struct {
		steps func(l *Ledger)
		want  string
	}{
		"given up, then held, then wanted by another": {func(l *Ledger) {
			l.Want(older(2))
			l.Hold(key("old"))
			l.Want(young)
		}, "young"},
		"wanted by another, then given up, then held": {func(l *Ledger) {
			l.Want(young)
			l.Want(older(2))
			l.Hold(key("old"))
		}, "young"},
		"held for another reason, then given up": {func(l *Ledger) {
			l.Want(older(2, vip("new")))
			l.Hold(key("old"))
			l.Want(young)
			l.Want(older(3))
		}, "young"},
		"given up, and wanted again": {func(l *Ledger) {
			l.Want(older(2))
			l.Hold(key("old"))
			l.Want(young)
			l.Want(older(3, vip("new")))
		}, "old"},
		"deleted": {func(l *Ledger) {
			l.Want(older(2))
			l.Hold(key("old"))
			l.Want(young)
			l.Want(fragment("old", 0, 3))
		}, "young"},
		"given up, and wanted by nobody": {func(l *Ledger) {
			l.Want(older(2))
			l.Hold(key("old"))
		}, "old"},
		"not given up": {func(l *Ledger) {
			l.Want(older(2, vip("new")))
			l.Hold(key("old"))
			l.Want(young)
		}, "old"},
		"given up, and the other is held": {func(l *Ledger) {
			l.Want(older(2))
			l.Hold(key("old"))
			l.Want(young)
			l.Hold(key("young"))
		}, "old"},
		"given up, and released": {func(l *Ledger) {
			l.Want(older(2))
			l.Hold(key("old"))
			l.Want(young)
			l.Release(key("old"))
		}, "young"},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(nil, fronts{})
			l.Want(fragment("old", 0, 1, vip("old")))
			l.Settle(l.Plan(), landed())
			tt.steps(l)
			for b := l.Plan(); b != nil && len(b.Changes) > 0; b = l.Plan() {
				l.Settle(b, landed())
			}
			if got := l.entries.get(vip("").ID).known.Body; got != tt.want {
				t.Errorf("the frontend leads to %s, want %s", got, tt.want)
			}
		})
	}
}

// fronts has one frontend, that of vip.
type fronts struct{ noNaming }

func (fronts) Frontend(id dataplane.ID) (f service.Frontend, ok bool) {
	return service.Frontend{Port: 80}, id == vip("").ID
}

// TestAForgoneService is not rendered since its actor was replaced. All others outrank it until that
// actor submits; late output of the former one changes nothing.
func TestAForgoneService(t *testing.T) {
	old := func(incarnation uint64, body string) *dataplane.Fragment {
		f := fragment("old", 0, 1, vip("old"), chain("o", body))
		f.Revision.Incarnation = incarnation
		return f
	}
	for name, tt := range map[string]struct {
		steps func(l *Ledger)
		want  string
	}{
		"forgone":                          {func(l *Ledger) { l.Forgo(key("old"), 2) }, "young"},
		"it has submitted":                 {func(l *Ledger) { l.Forgo(key("old"), 1) }, "old"},
		"it submits":                       {func(l *Ledger) { l.Forgo(key("old"), 2); l.Want(old(2, "v1")) }, "old"},
		"the former incarnation is late":   {func(l *Ledger) { l.Forgo(key("old"), 2); l.Want(old(1, "v2")) }, "young"},
		"held before":                      {func(l *Ledger) { l.Want(old(1, "v2")); l.Hold(key("old")); l.Forgo(key("old"), 2) }, "young"},
		"held later":                       {func(l *Ledger) { l.Want(old(1, "v2")); l.Forgo(key("old"), 2); l.Hold(key("old")) }, "young"},
		"held, and it submits":             {func(l *Ledger) { l.Hold(key("old")); l.Forgo(key("old"), 2); l.Want(old(2, "v3")) }, "old"},
		"another one is not known":         {func(l *Ledger) { l.Forgo(key("other"), 2) }, "old"},
		"the young one is forgone as well": {func(l *Ledger) { l.Forgo(key("old"), 2); l.Forgo(key("young"), 2) }, "old"},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(nil, fronts{})
			l.Want(old(1, "v1"))
			l.Want(fragment("young", 5, 1, vip("young")))
			l.Settle(l.Plan(), landed())
			tt.steps(l)
			for b := l.Plan(); b != nil && len(b.Changes) > 0; b = l.Plan() {
				l.Settle(b, landed())
			}
			if got := l.entries.get(vip("").ID).known.Body; got != tt.want {
				t.Errorf("the frontend leads to %s, want %s", got, tt.want)
			}
		})
	}
}
