package ipset

// Spec says how to make a set.
type Spec struct {
	// Name is at most 31 bytes long.
	Name   string
	Type   Type
	Family Family
	// HashSize is the number of buckets at the start, a power of 2; the kernel
	// adds more as entries come. 0 is the kernel's default, 1024. It makes no set
	// different from another. Hash types only.
	HashSize uint32
	// MaxElem is how many entries fit; 0 is the kernel's default, 65536. It costs
	// nothing until they are there. Hash types only; a bitmap keeps every port.
	MaxElem uint32
}

// String gives type and family, as "hash:ip,port inet" or "bitmap:port".
func (s Spec) String() string {
	if s.Family == NoFamily {
		return string(s.Type)
	}
	return string(s.Type) + " " + s.Family.String()
}

// Set is what the kernel says about a set.
type Set struct {
	Spec
	// FirstPort and LastPort are the range of a bitmap of ports.
	FirstPort, LastPort uint16
	Revision            uint8
	// References counts the rules that ask the set; a set that has some cannot be
	// destroyed.
	References uint32
	// Count is the number of entries.
	Count uint32
	// MemoryBytes is what the set takes in the kernel.
	MemoryBytes uint32
	// Entries are those of a known type, in no order; nil when only headers were
	// asked for. Left out is what has no text here, although Count counts it.
	Entries []Entry
}

// nearlyFullPercent is when a set has so little room left that somebody should
// be told.
const nearlyFullPercent = 80

// Capacity is how many entries fit into the set, 0 when that is not known.
func (s Set) Capacity() uint32 {
	if s.Type == BitmapPort {
		return uint32(s.LastPort) - uint32(s.FirstPort) + 1
	}
	return s.MaxElem
}

// NearlyFull says whether at least 80 % of a set of a hash type are used. A
// bitmap has room for every port, so that it does no harm when it is full.
func (s Set) NearlyFull() bool {
	return s.Type != BitmapPort && s.MaxElem > 0 && uint64(s.Count)*100 >= uint64(s.MaxElem)*nearlyFullPercent
}
