// SPDX-License-Identifier: Apache-2.0

//go:build linux

package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane/iptables/rules"
	ipvswire "github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

// ipSet is an ipset with the entries of the concerned Services.
type ipSet struct {
	kind    ipvswire.SetType
	entries []ipvswire.Entry
}

// setParts are how many parts of a packet each type of set compares.
var setParts = map[ipvswire.SetType]int{
	ipvswire.BitmapPort: 1, ipvswire.HashIP: 1, ipvswire.HashIPPort: 2, ipvswire.HashIPPortIP: 3, ipvswire.HashIPPortNet: 3,
}

// findInSet evaluates "--match-set NAME dst,src": it returns the entry that a packet finds, as ipset
// prints it.
func (r *iptRules) findInSet(o *rules.Option, b *iptBranch) (entry string, found bool, err error) {
	set, known := r.sets[o.Arg(0)]
	if !known {
		return "", false, fmt.Errorf("there is no set %q", o.Arg(0))
	}
	var parts []netip.AddrPort
	for part := range strings.SplitSeq(o.Arg(1), ",") {
		switch part {
		case "src":
			parts = append(parts, b.src)
		case "dst":
			parts = append(parts, b.dst)
		default:
			return "", false, fmt.Errorf("unknown part %q of a packet", part)
		}
	}
	if want := setParts[set.kind]; want == 0 || len(parts) != want {
		return "", false, fmt.Errorf("%q: a set of type %s compares %d parts of a packet", o.Arg(1), set.kind, want)
	}
	for _, e := range set.entries {
		if entryMatches(set.kind, e, parts, setProtocol(b.protocol)) {
			return e.String(), true, nil
		}
	}
	return "", false, nil
}

// entryMatches compares one entry with the parts of a packet. In a set of addresses, a port has a protocol; in a
// bitmap, it has none.
func entryMatches(kind ipvswire.SetType, e ipvswire.Entry, parts []netip.AddrPort, protocol ipvswire.Protocol) bool {
	switch kind {
	case ipvswire.BitmapPort:
		return e.Port == parts[0].Port()
	case ipvswire.HashIP:
		return e.Addr == parts[0].Addr()
	}
	if e.Addr != parts[0].Addr() || e.Port != parts[1].Port() || e.Protocol != protocol {
		return false
	}
	return kind == ipvswire.HashIPPort || e.Second.Contains(parts[2].Addr())
}

func setProtocol(p service.Protocol) ipvswire.Protocol { return ipvswire.Protocol(p.Number()) }
