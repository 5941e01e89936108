// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// Fragment is everything that one Service wants in one domain, at one revision. It is
// immutable.
type Fragment struct {
	Key      service.Key
	Revision service.Revision
	// Objects are sorted by ID; no ID occurs twice.
	Objects []Object
	// Digest is equal for fragments of equal content within one process.
	Digest uint64
	// Trigger is when the oldest change in this fragment was caused, Received when
	// the source delivered it; zero if unknown. Coalescing keeps the earliest.
	Trigger, Received time.Time
	// Trace says how the fragment came about; nothing depends on it.
	Trace Trace
	// Gone marks a tombstone: the Service no longer exists. Otherwise a fragment
	// without objects belongs to a Service that needs nothing in this domain.
	Gone bool
}

// Trace says how a fragment came about. There is one per fragment, so it is small.
type Trace struct {
	// Seen is when the actor first looked at the change, and Rendered when the fragment
	// was ready.
	Seen, Rendered Moment
	// Endpoints is the number of endpoints that may get new connections, over all service ports of the domain's family.
	Endpoints uint32
	// Causes are what changed.
	Causes Causes
}

// Moment is a time.Time in a third of the room; the zero value is unknown. A step of the
// clock does not change the time between two of them.
type Moment int64

// epoch is before every moment.
var epoch = time.Now().Add(-time.Second)

// MomentOf returns the moment of a time, which has to be later than the start of the
// process.
func MomentOf(t time.Time) Moment { return Moment(t.Sub(epoch)) }

// Time returns the time of a moment; zero if it is unknown.
func (m Moment) Time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return epoch.Add(time.Duration(m))
}

// Since adds the earlier trace of a fragment that this one replaces before it is
// applied.
func (t Trace) Since(earlier Trace) Trace {
	t.Causes |= earlier.Causes
	if earlier.Seen != 0 && earlier.Seen < t.Seen {
		t.Seen = earlier.Seen
	}
	return t
}

// Causes is a set of causes of a change.
type Causes uint8

// The causes.
const (
	// CauseStart: the actor has started, and read everything.
	CauseStart Causes = 1 << iota
	CauseService
	CauseEndpoints
	// CauseNode: the facts about the node have changed.
	CauseNode
	// CauseObserved: the node has observed something of the endpoints.
	CauseObserved
)

// Names returns the names of the causes.
func (c Causes) Names() (names []string) {
	for i, name := range [...]string{"start", "service", "endpoints", "node", "observed"} {
		if c&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// NewFragment takes ownership of objects, sorts them and computes the digest. If an ID
// occurs twice (two ports of one Service that claim the same element), the first in the
// given order stays.
func NewFragment(key service.Key, objects []Object) *Fragment {
	slices.SortStableFunc(objects, func(a, b Object) int { return a.ID.Compare(b.ID) })
	objects = slices.CompactFunc(objects, func(a, b Object) bool { return a.ID == b.ID })
	return &Fragment{Key: key, Objects: objects, Digest: digest(objects)}
}

var digestSeed = maphash.MakeSeed()

func digest(objects []Object) uint64 {
	var h maphash.Hash
	h.SetSeed(digestSeed)
	for i := range objects {
		o := &objects[i]
		for _, s := range [...]string{o.ID.Container, o.ID.Name, o.Body} {
			// Lengths keep neighbouring strings apart.
			writeInt(&h, int64(len(s)))
			h.WriteString(s)
		}
	}
	return h.Sum64()
}

func writeInt(h *maphash.Hash, n int64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	h.Write(b[:])
}

// Earliest returns the earlier of two times; a zero time does not count. Coalescing uses
// it to keep the time of the oldest part.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
