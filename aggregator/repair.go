// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"fmt"
	"hash/maphash"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/service"
)

// repairs decides when to write again what other programs undo. It is pure: its owner
// passes events and the time.
//
// Invariant: objects that are undone for the first time are written again immediately. If an announced change undoes
// them again soon after, the next repair waits, longer each time: the cause is no accident but a program that
// disagrees, and two programs that react to each other immediately would do nothing else. If no rule that serves is
// left, the repair does not wait: then no program disagrees about contents, and a pause would only harm the clients.
type repairs struct {
	// heard is what was announced since the last audit began, and during what was announced before that: the audit may
	// have found either.
	heard, during announcement
	// marks has the objects that were repaired recently, and the sets of objects that
	// were repaired together, by hashes of their identities: an identity would keep the
	// text of a whole fragment in memory.
	marks map[uint64]mark
	seed  maphash.Seed
	// heldUntil is when the waiting repair may begin; zero if none waits.
	heldUntil time.Time
	// open is what is being repaired, if count is not 0; since is when the first of it
	// was noticed.
	open struct {
		repairs, count int
		since          time.Time
	}
	// fruitless is set if an announcement requested the last audit, which found nothing
	// to write immediately.
	fruitless bool
	// failed counts the audits that failed since one succeeded.
	failed int
}

// announcement is the announcement of changes by other programs.
type announcement struct {
	// at is when the first came; zero for none. by is the last known process.
	at time.Time
	by dataplane.ForeignProcess
}

// and adds a later announcement.
func (a announcement) and(later announcement) announcement {
	if a.at.IsZero() {
		a.at = later.at
	}
	if later.by != (dataplane.ForeignProcess{}) {
		a.by = later.by
	}
	return a
}

// mark is one repaired object, or a set of objects that were repaired together.
type mark struct {
	// times is how often in a row; repaired is when the last repair ended, zero until
	// then.
	times    int
	repaired time.Time
}

const (
	// repairPauseMin is the pause before the second repair of the same objects; it
	// doubles up to repairPauseMax.
	repairPauseMin = time.Second
	repairPauseMax = 30 * time.Second
	// repairQuiet is how long a repair must last for the next one of the same objects to
	// count as the first. It is short: if a program undoes something every few seconds,
	// repairing immediately does less harm than waiting.
	repairQuiet = 2 * time.Second
	// repairOverlaps is how often an object may be repaired in a row, each time with
	// other objects, before repairs wait: separate accidents may overlap.
	repairOverlaps = 3
	// marksMax bounds the remembered objects. Beyond it all are forgotten, which costs a
	// repair that comes too early.
	marksMax = 16 * ledger.UndoneMax
	// everything is the mark of more objects than an audit lists.
	everything = 0
	// auditRest limits audits that find nothing to a quarter of the time, however much
	// is announced, but delays none by more than auditRestMax.
	auditRest    = 3
	auditRestMax = time.Second
	// examplesMax is how many objects a repair names.
	examplesMax = 5
)

// beginRepair reports what an audit found undone.
func (m *machine) beginRepair(now time.Time, done *AuditDone) {
	if done.Err != nil {
		if m.repairs.auditFailed() {
			m.pacer.Rest(now.Add(m.pacer.Retry(m.repairs.failed)))
			m.pacer.AuditSoon(now)
		}
		return
	}
	if began := m.repairs.found(now, done.Took, &done.Drift); began != nil {
		began.Domain = m.domain
		m.tell(*began)
	}
	if m.repairs.fruitless {
		m.pacer.Rest(now.Add(min(auditRest*done.Took, auditRestMax)))
	}
}

// repairDone reports that nothing is left to repair. A search leaves out what its suspects miss, so a repair is not done
// before the search has ended.
func (m *machine) repairDone(now time.Time) {
	if m.searching() {
		return
	}
	if told := m.repairs.repairDone(now); told != nil {
		told.Domain = m.domain
		m.tell(*told)
	}
}

// partlyRepaired reports a write that brings rules back before the search has found the culprit. Of a long search, it
// reports the first writes only.
func (m *machine) partlyRepaired(r *result) {
	searches := m.searching() && m.tries.bisection.spent <= tryBurst
	if r.receipt.Outcome != dataplane.Landed {
		searches = r.purpose == ordinary && r.serves()
	}
	if searches && (m.repairs.open.count > 0 || !m.start.synced) {
		m.tell(PartlyRepaired{Domain: m.domain})
	}
}

func newRepairs() repairs {
	return repairs{marks: map[uint64]mark{}, seed: maphash.MakeSeed()}
}

// announced notes that another program changed our objects.
func (r *repairs) announced(now time.Time, by dataplane.ForeignProcess) {
	r.heard = r.heard.and(announcement{at: now, by: by})
}

// auditing notes that an audit begins.
func (r *repairs) auditing() { r.during, r.heard = r.heard, announcement{} }

// auditFailed counts the audit, and reports whether the next one has to look for an announced change.
func (r *repairs) auditFailed() bool {
	r.failed++
	r.heard = r.during.and(r.heard)
	return !r.heard.at.IsZero()
}

// found takes what an audit found, and the audit's duration. It returns the event; nil if nothing was undone.
func (r *repairs) found(now time.Time, took time.Duration, drift *ledger.Drift) *RepairBegan {
	undone := drift.Undone
	change := r.during.and(r.heard)
	announced := !change.at.IsZero()
	if !announced {
		change.at = now.Add(-took)
	}
	r.fruitless, r.failed = announced, 0
	if undone == nil {
		return nil
	}
	began := &RepairBegan{Undone: *undone, Examples: examples(undone), By: change.by}
	marks := r.identify(undone)
	if announced {
		began.Again = r.again(now, marks)
	}
	if began.Again == 0 || drift.Emptied {
		r.fruitless, r.heldUntil = false, time.Time{}
	} else {
		began.Pause = min(repairPauseMin<<min(began.Again-1, 10), repairPauseMax)
		if until := now.Add(began.Pause); r.heldUntil.IsZero() || until.Before(r.heldUntil) {
			r.heldUntil = until
		}
	}
	if r.open.count == 0 {
		r.open.since = change.at
	}
	r.open.repairs, r.open.count = r.open.repairs+1, r.open.count+undone.Count()
	if announced { // others come no more often than audits do
		r.mark(now, marks)
	}
	return began
}

// identify returns the marks of what was undone: that of the set, then the objects'.
func (r *repairs) identify(undone *ledger.Undone) []uint64 {
	if undone.Count() > len(undone.Objects) {
		return []uint64{everything}
	}
	marks := make([]uint64, 1, 1+len(undone.Objects))
	for i := range undone.Objects {
		object := maphash.Comparable(r.seed, undone.Objects[i].ID)
		marks[0] ^= object // in any order
		marks = append(marks, object)
	}
	marks[0] = ^marks[0] // the mark of a set of one object differs from that of the object
	return marks
}

// again returns how often in a row this set of objects was repaired recently, or, if that is more, how often each of
// them was repaired in any set, less repairOverlaps.
func (r *repairs) again(now time.Time, marks []uint64) int {
	set, objects := r.times(now, marks[0]), marks[1:]
	if len(objects) == 0 {
		return set
	}
	each := r.times(now, objects[0])
	for _, m := range objects[1:] {
		each = min(each, r.times(now, m))
	}
	return max(set, each-repairOverlaps)
}

func (r *repairs) times(now time.Time, object uint64) int {
	m, known := r.marks[object]
	if !known || r.stood(now, m) {
		return 0
	}
	return m.times
}

func (r *repairs) stood(now time.Time, m mark) bool {
	return !m.repaired.IsZero() && now.Sub(m.repaired) >= repairQuiet
}

// mark counts a repair of the objects.
func (r *repairs) mark(now time.Time, marks []uint64) {
	if len(r.marks)+len(marks) > marksMax {
		clear(r.marks)
	}
	for object, m := range r.marks {
		if r.stood(now, m) {
			delete(r.marks, object)
		}
	}
	for _, object := range marks {
		r.marks[object] = mark{times: r.marks[object].times + 1}
	}
}

// held reports whether a repair waits, and until when.
func (r *repairs) held(now time.Time) (until time.Time, held bool) {
	return r.heldUntil, now.Before(r.heldUntil)
}

// repairDone notes that the kernel is as wanted again. It returns the event; nil if
// nothing was being repaired.
func (r *repairs) repairDone(now time.Time) *Repaired {
	r.heldUntil = time.Time{}
	if r.open.count == 0 {
		return nil
	}
	for object, m := range r.marks {
		if m.repaired.IsZero() {
			m.repaired = now
			r.marks[object] = m
		}
	}
	told := &Repaired{Repairs: r.open.repairs, Objects: r.open.count, Took: now.Sub(r.open.since)}
	r.open.repairs, r.open.count = 0, 0
	return told
}

// examples describes some of what was undone, Services' objects first.
func examples(undone *ledger.Undone) []string {
	var names []string
	for _, ofService := range []bool{true, false} {
		for i := range undone.Objects {
			o := &undone.Objects[i]
			if (o.Owner.Namespace != "") == ofService && len(names) < examplesMax {
				names = append(names, describe(o))
			}
		}
	}
	return names
}

// describe names an object: "missing: 10.96.0.10:53/udp in CONTAINER (ns1/dns)".
func describe(o *ledger.UndoneObject) string {
	what := "different: "
	if o.Missing {
		what = "missing: "
	} else if o.Unwanted {
		what = "unwanted: "
	}
	if o.Frontend != (service.Frontend{}) {
		what += o.Frontend.String() + " in " + o.ID.Container
	} else if strings.ContainsFunc(o.ID.Name, func(c rune) bool { return c < ' ' || c > '~' }) {
		what += "an entry of " + o.ID.Container // its name is binary
	} else {
		what += o.ID.Container + " " + o.ID.Name
	}
	if o.Owner.Namespace != "" {
		what += fmt.Sprintf(" (%v)", o.Owner)
	}
	return what
}
