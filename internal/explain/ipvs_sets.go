package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane/ipvs/kernel"
	"github.com/sluice-proxy/sluice/service"
)

// ipSet is a set of package ipset with the entries of the Services concerned.
type ipSet struct {
	kind    kernel.SetType
	entries []kernel.Entry
}

// setLookup is what a rule looks up in a set.
type setLookup struct {
	set string
	// fromSource says, for each part of an entry, whether the packet's source or its
	// destination is compared with it.
	fromSource []bool
}

// setParts are how many parts of a packet each type of set compares.
var setParts = map[kernel.SetType]int{
	kernel.BitmapPort: 1, kernel.HashIP: 1, kernel.HashIPPort: 2, kernel.HashIPPortIP: 3, kernel.HashIPPortNet: 3,
}

// setMatch reads "--match-set NAME dst,src".
func (p *iptParser) setMatch(name, parts string) error {
	set, known := p.sets[name]
	if !known {
		return fmt.Errorf("there is no set %q", name)
	}
	l := &setLookup{set: name}
	for part := range strings.SplitSeq(parts, ",") {
		if part != "src" && part != "dst" {
			return fmt.Errorf("unknown part %q of a packet", part)
		}
		l.fromSource = append(l.fromSource, part == "src")
	}
	if want := setParts[set.kind]; want == 0 || len(l.fromSource) != want {
		return fmt.Errorf("%q: a set of type %s compares %d parts of a packet", parts, set.kind, want)
	}
	if p.rule.lookup != nil {
		return fmt.Errorf("more than one set in one rule")
	}
	if !p.not {
		p.rule.lookup = l
	}
	p.when(func(r *iptRules, b *iptBranch) bool {
		_, found := l.find(r, b)
		return found
	})
	return nil
}

// find returns the entry that a packet finds, as ipset prints it.
func (l *setLookup) find(r *iptRules, b *iptBranch) (entry string, found bool) {
	set := r.sets[l.set]
	at := slices.IndexFunc(set.entries, func(e kernel.Entry) bool { return l.matches(set.kind, e, b) })
	if at < 0 {
		return "", false
	}
	return set.entries[at].String(), true
}

// matches compares one entry. A port in a set of addresses is one of a protocol; a bitmap knows
// none.
func (l *setLookup) matches(kind kernel.SetType, e kernel.Entry, b *iptBranch) bool {
	part := func(n int) netip.AddrPort {
		if l.fromSource[n] {
			return b.src
		}
		return b.dst
	}
	switch kind {
	case kernel.BitmapPort:
		return e.Port == part(0).Port()
	case kernel.HashIP:
		return e.Addr == part(0).Addr()
	}
	if e.Addr != part(0).Addr() || e.Port != part(1).Port() || e.Protocol != setProtocol(b.protocol) {
		return false
	}
	return kind == kernel.HashIPPort || e.Second.Contains(part(2).Addr())
}

func setProtocol(p service.Protocol) kernel.Protocol { return kernel.Protocol(p.Number()) }
