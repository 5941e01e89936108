// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// packet is the input of the reference matcher.
type packet struct {
	source, destination netip.Addr
	protocol            string
	port                int
}

// kernel is the result of flushes: chains by name, as lists of rules.
type kernel map[dataplane.ID]*dataplane.Object

func (k kernel) apply(changes []dataplane.Composed) {
	for _, c := range changes {
		if c.Object == nil {
			delete(k, c.ID)
		} else {
			k[c.ID] = c.Object
		}
	}
}

// walk is the path of one packet: the targets of final rules that it matched, the number of rules
// that it passed, and the deepest nesting of chains.
type walk struct {
	hits  []string
	rules int
	depth int
}

// send walks a packet through a chain as iptables would, following jumps and
// noting other targets without stopping.
func (k kernel) send(t *testing.T, w *walk, p packet, chain dataplane.ID, depth int) {
	t.Helper()
	object := k[chain]
	if object == nil {
		t.Fatalf("jump to missing chain %s", chain.Name)
	}
	w.depth = max(w.depth, depth)
	for _, line := range lines(object) {
		w.rules++
		match, target, found := strings.Cut(line, "-j ")
		if !found {
			t.Fatalf("rule without a target: %q", line)
		}
		if !p.matches(t, strings.Fields(match)) {
			continue
		}
		next := dataplane.ID{Container: chain.Container, Name: target}
		if !strings.HasPrefix(target, "KUBE-SVC-T") {
			w.hits = append(w.hits, target)
			continue
		}
		k.send(t, w, p, next, depth+1)
	}
}

// matches evaluates the matches that this package writes.
func (p packet) matches(t *testing.T, fields []string) bool {
	for i := 0; i+1 < len(fields); i += 2 {
		value := fields[i+1]
		switch fields[i] {
		case "-s", "-d":
			addr := p.destination
			if fields[i] == "-s" {
				addr = p.source
			}
			if !netip.MustParsePrefix(value).Contains(addr) {
				return false
			}
		case "-p", "-m":
			if value != p.protocol {
				return false
			}
		case "--dport":
			first, last, ranged := strings.Cut(value, ":")
			if !ranged {
				last = first
			}
			low, _ := strconv.Atoi(first)
			high, _ := strconv.Atoi(last)
			if p.port < low || p.port > high {
				return false
			}
		default:
			t.Fatalf("unknown match in %q", fields)
		}
	}
	return true
}

func lines(o *dataplane.Object) []string {
	if o.Body == "" {
		return nil
	}
	return strings.Split(o.Body, "\n")
}

// item is an element and the packet that it is for.
type item struct {
	object *dataplane.Object
	packet packet
	target string
}

// makeItem makes a tree element of a container with a rule that matches exactly
// its key and jumps to a target of its own.
func makeItem(c Container, name string) item {
	key, err := DecodeKey(name)
	if err != nil {
		panic(err)
	}
	p := packet{protocol: key.Protocol.String(), port: int(key.Port)}
	var match []string
	switch c.Shape {
	case BySource:
		p.source, p.protocol = key.Addr, ""
		match = append(match, fmt.Sprintf("-s %s/%d", key.Addr, key.Addr.BitLen()))
	case ByDestination:
		p.destination = key.Addr
		match = append(match, fmt.Sprintf("-d %s/%d", key.Addr, key.Addr.BitLen()))
	}
	if key.HasPort {
		match = append(match, fmt.Sprintf("-p %s -m %[1]s --dport %d", key.Protocol, key.Port))
	}
	target := fmt.Sprintf("X%x", name)
	return item{
		object: &dataplane.Object{
			ID:    dataplane.ID{Container: c.Name(), Name: name},
			Kind:  dataplane.Element,
			Body:  strings.Join(match, " ") + " -j " + target,
			Links: dataplane.LinkTo(dataplane.ID{Container: c.Table, Name: target}),
		},
		packet: p,
		target: target,
	}
}

// keyMaker draws keys that mostly cluster as real ones do.
func keyMaker(c Container, family service.Family, rnd *rand.Rand) func() string {
	return func() string {
		protocol := protocols[rnd.IntN(3)]
		port := [...]uint16{80, 443, uint16(rnd.IntN(1 << 16)), uint16(rnd.IntN(200))}[rnd.IntN(4)]
		addr := drawAddr(family, rnd)
		switch c.Shape {
		case ByPort:
			return PortKey(protocol, port)
		case BySource:
			return SourceKey(addr)
		default:
			return DestinationKey(addr, protocol, port)
		}
	}
}

func drawAddr(family service.Family, rnd *rand.Rand) netip.Addr {
	bits := rnd.Uint32()
	switch rnd.IntN(10) {
	case 0: // anywhere
	case 1: // one address with many ports
		bits = 0xAC1E0001
	default: // a service range
		bits = 0xAC1E0000 | bits&0x3FF
	}
	if family == service.IPv4 {
		return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, bits)))
	}
	a := netip.MustParseAddr("fd00:172:30::").As16()
	binary.BigEndian.PutUint32(a[12:], bits)
	return netip.AddrFrom16(a)
}

// checkInvariants holds after any flush: the packet of an element matches it exactly once, chains
// are short and shallow, no jump dangles, and parts match lines.
func checkInvariants(t *testing.T, c Container, k kernel, items map[string]item) {
	t.Helper()
	reachable := map[dataplane.ID]bool{c.ID(): true}
	total := 0
	for _, id := range slices.SortedFunc(maps.Keys(k), dataplane.ID.Compare) {
		object := k[id]
		elements := 0
		for _, line := range lines(object) {
			if !strings.Contains(line, "-j KUBE-SVC-T") {
				elements++
			}
		}
		if elements > LeafMax {
			t.Errorf("%s holds %d elements, want at most %d", id.Name, elements, LeafMax)
		}
		total += elements
		if len(object.Parts()) != len(lines(object)) {
			t.Errorf("%s: %d parts for %d lines", id.Name, len(object.Parts()), len(lines(object)))
		}
		if len(id.Name) > 28 {
			t.Errorf("%s is longer than iptables allows", id.Name)
		}
		for _, ref := range object.Refs() {
			reachable[ref] = true
		}
	}
	if total != len(items) {
		t.Errorf("%d elements in the chains, want %d", total, len(items))
	}
	for id := range k {
		if !reachable[id] {
			t.Errorf("nothing jumps to %s", id.Name)
		}
	}
	// The iteration order of a map draws the sample; all elements would take long.
	sample := 150
	for _, i := range items {
		if sample--; sample < 0 {
			break
		}
		var w walk
		k.send(t, &w, i.packet, c.ID(), 1)
		if !slices.Equal(w.hits, []string{i.target}) {
			t.Errorf("packet %+v meets %q, want %s", i.packet, w.hits, i.target)
		}
	}
}
