package reduce

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// internSlots bounds what intern remembers: one string per slot, 8 bytes for
// the slot itself. Names that fall into the same slot displace each other, which
// costs a copy and nothing else. It is enough for a few thousand nodes with
// their zones and port names.
const internSlots = 1 << 14

// interned remembers the last string of each slot. Package unique forgets a
// string as soon as no handle is left, and the values here hold plain strings.
var interned [internSlots]atomic.Pointer[string]

var internSeed = maphash.MakeSeed()

// intern gives a string equal to s that is shared with earlier results and not
// with the API object. For strings that repeat: node, zone, port and namespace
// names. Safe for concurrent use.
func intern(s string) string {
	if s == "" {
		return ""
	}
	slot := &interned[maphash.String(internSeed, s)%internSlots]
	if known := slot.Load(); known != nil && *known == s {
		return *known
	}
	own := strings.Clone(s)
	slot.Store(&own)
	return own
}
