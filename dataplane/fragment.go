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
	// Created is when the Service was created; it ranks claims.
	Created time.Time
	// Objects are sorted by ID; no ID occurs twice.
	Objects []Object
	// Digest is equal for fragments of equal content within one process.
	Digest uint64
	// Trigger is when the oldest change in this fragment was caused, Received when
	// the source delivered it; zero if unknown. Coalescing keeps the earliest.
	Trigger, Received time.Time
	// Urgent shortens the spacing, because endpoints left: a dead endpoint is worse
	// than a missing new one.
	Urgent bool
	// Gone marks a tombstone: the Service no longer exists. Otherwise a fragment
	// without objects belongs to a Service that needs nothing in this domain.
	Gone bool
}

// NewFragment takes ownership of objects, sorts them and computes the digest. If an ID
// occurs twice (two ports of one Service that claim the same element), the first in the
// given order stays.
func NewFragment(key service.Key, created time.Time, objects []Object) *Fragment {
	slices.SortStableFunc(objects, func(a, b Object) int { return a.ID.Compare(b.ID) })
	objects = slices.CompactFunc(objects, func(a, b Object) bool { return a.ID == b.ID })
	return &Fragment{Key: key, Created: created, Objects: objects, Digest: digest(created, objects)}
}

var digestSeed = maphash.MakeSeed()

func digest(created time.Time, objects []Object) uint64 {
	var h maphash.Hash
	h.SetSeed(digestSeed)
	writeInt(&h, created.UnixNano())
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
