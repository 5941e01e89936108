package genl

import (
	"encoding/binary"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// Stats is what the kernel has counted since a virtual or real server was made. It
// sums its counters up every two seconds, and not at all while the sysctl
// net.ipv4.vs.run_estimation is 0.
type Stats struct {
	// Connections counts those that were scheduled.
	Connections           uint64
	PacketsIn, PacketsOut uint64
	BytesIn, BytesOut     uint64
}

// Attributes of the counters (IPVS_STATS_ATTR_…); the rates are left out.
const (
	statsConnections = 1
	statsPacketsIn   = 2
	statsPacketsOut  = 3
	statsBytesIn     = 4
	statsBytesOut    = 5
)

// parseStats reads the counters of a virtual or real server: the wide ones (Linux
// 4.1), else the narrow ones.
func parseStats(attrs []byte, wide, narrow uint16) Stats {
	nested := wire.Find(attrs, wide).Data
	if nested == nil {
		nested = wire.Find(attrs, narrow).Data
	}
	var s Stats
	for a := range wire.Attrs(nested) {
		switch a.Type {
		case statsConnections:
			s.Connections = count(a.Data)
		case statsPacketsIn:
			s.PacketsIn = count(a.Data)
		case statsPacketsOut:
			s.PacketsOut = count(a.Data)
		case statsBytesIn:
			s.BytesIn = count(a.Data)
		case statsBytesOut:
			s.BytesOut = count(a.Data)
		}
	}
	return s
}

// count reads a counter of 64 or 32 bits.
func count(data []byte) uint64 {
	if len(data) == 8 {
		return binary.NativeEndian.Uint64(data)
	}
	return uint64(uint32At(data))
}
