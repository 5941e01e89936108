package dataplane

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// Fragment is everything one Service wants in one domain at one revision: a set
// of objects. A fragment without objects is a tombstone. It is immutable.
type Fragment struct {
	Key      service.Key
	Revision service.Revision
	// Created is the age of the Service, by which claims are decided.
	Created time.Time
	// Objects are sorted by ID; no ID occurs twice.
	Objects []Object
	// Digest is equal for fragments of equal content within one process.
	Digest uint64
	// Trigger is the earliest moment at which something that this fragment
	// carries was caused; zero when unknown. It survives coalescing.
	Trigger time.Time
	// Received is the earliest moment at which the source handed over
	// something that this fragment carries; zero when unknown. It survives
	// coalescing.
	Received time.Time
	// Urgent asks the pacer not to wait for spacing, because endpoints left:
	// a dead endpoint hurts more than a missing new one.
	Urgent bool
	// Gone marks the tombstone of a Service that no longer exists, as opposed
	// to one that merely needs nothing in this domain.
	Gone bool
}

// NewFragment takes ownership of objects, sorts them and computes the digest.
// When an ID occurs twice (two ports of one Service that claim the same
// element), the first in the given order stays.
func NewFragment(key service.Key, created time.Time, objects []Object) *Fragment {
	slices.SortStableFunc(objects, func(a, b Object) int { return a.ID.Compare(b.ID) })
	objects = slices.CompactFunc(objects, func(a, b Object) bool { return a.ID == b.ID })
	return &Fragment{Key: key, Created: created, Objects: objects, Digest: digest(created, objects)}
}

// Tombstone tells whether the fragment wants nothing in the kernel.
func (f *Fragment) Tombstone() bool { return len(f.Objects) == 0 }

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
