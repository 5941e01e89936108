package ledger

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// account is what the ledger knows about one key.
type account struct {
	key service.Key
	// created is the age of the Service as folded has it, by which its claims
	// are ranked.
	created time.Time
	// latest is the newest fragment seen.
	latest *dataplane.Fragment
	// folded is the fragment whose objects are claimed now: latest, or applied
	// while the key is held.
	folded *dataplane.Fragment
	// applied is the newest fragment that is wholly in the kernel. Before the first
	// it is what a former process has left there (Adopt); nil for nothing.
	applied *dataplane.Fragment
	held    bool
	// frozen is set while the kernel refuses applied as well, so that the account falls
	// back to standing: what the kernel had of it then.
	frozen   bool
	standing *dataplane.Fragment
	// shrunk is set once an element has left composed objects, until the next
	// settlement.
	shrunk bool
	// pending is set while folded has not been settled; trigger and received
	// are the earliest among the fragments that it stands for.
	pending           bool
	trigger, received time.Time
	// yields is set while somebody outranks the account at a lead, so that it makes
	// no claims for what goes with that. waits lists those of them that it does not
	// claim itself.
	yields bool
	waits  []dataplane.ID
}

// owe marks the account as pending and keeps the earliest times.
func (a *account) owe() {
	if !a.pending {
		a.trigger, a.received = time.Time{}, time.Time{}
	}
	a.pending = true
	a.trigger = dataplane.Earliest(a.trigger, a.latest.Trigger)
	a.received = dataplane.Earliest(a.received, a.latest.Received)
}

// fallback is what a held account wants.
func (a *account) fallback() *dataplane.Fragment {
	if a.frozen {
		return a.standing
	}
	return a.applied
}

// objectsOf gives a fragment's objects; a nil fragment has none.
func objectsOf(f *dataplane.Fragment) []dataplane.Object {
	if f == nil {
		return nil
	}
	return f.Objects
}

// contribution gives the share of a pending account in a batch.
func (a *account) contribution() dataplane.Contribution {
	return dataplane.Contribution{Key: a.key, Revision: a.folded.Revision, Trigger: a.trigger, Received: a.received}
}
