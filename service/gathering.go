package service

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
)

// gathering collects the candidates of one service port: every slice of the
// family contributes all its endpoints with each of its ports of that name and
// protocol. The zero value is ready; its buffers are reused from port to port.
type gathering struct {
	// from are the slices that the candidates refer to.
	from []*Slice
	// candidates are sorted by text form, without duplicates.
	candidates []candidate
	// texts holds the text forms, back to back.
	texts []byte
}

// gather replaces the candidates by those of a service port.
func (g *gathering) gather(family Family, port *Port, from []*Slice, nodeName string) {
	g.reset(family, port, from)
	for n, s := range from {
		if s.Family != family {
			continue
		}
		for i := range s.Ports {
			if s.Ports[i].serves(port) {
				g.addAll(int32(n), s.Ports[i].Port, nodeName)
			}
		}
	}
	slices.SortFunc(g.candidates, func(a, b candidate) int { return g.compare(&a, &b) })
	// The best occurrence of each endpoint comes first and is the one to stay.
	g.candidates = slices.CompactFunc(g.candidates, func(a, b candidate) bool {
		return a.head == b.head && bytes.Equal(g.text(&a), g.text(&b))
	})
}

// reset empties the buffers and makes room for what is to come.
func (g *gathering) reset(family Family, port *Port, from []*Slice) {
	g.from = from
	count := 0
	for _, s := range from {
		if s.Family != family {
			continue
		}
		for i := range s.Ports {
			if s.Ports[i].serves(port) {
				count += len(s.Endpoints)
			}
		}
	}
	// Usual lengths, for example "10.244.100.100:8080" and
	// "[fd00:10:244:1::1234]:8080"; longer ones make the buffer grow.
	textBytes := PerFamily[int]{20, 28}[family]
	g.candidates = slices.Grow(g.candidates[:0], count)
	g.texts = slices.Grow(g.texts[:0], count*textBytes)
}

// addAll adds the endpoints of a slice at one of its ports.
func (g *gathering) addAll(slice int32, port uint16, nodeName string) {
	s := g.from[slice]
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		start := len(g.texts)
		g.texts = netip.AddrPortFrom(e.Addr, port).AppendTo(g.texts)
		g.candidates = append(g.candidates, candidate{
			head:     head(g.texts[start:]),
			slice:    slice,
			index:    int32(i),
			text:     int32(start),
			textSize: uint8(len(g.texts) - start),
			standing: standingOf(e),
			local:    nodeName != "" && e.NodeName == nodeName,
			port:     port,
		})
	}
}

// compare orders by text form, then the better standing first, then place.
func (g *gathering) compare(a, b *candidate) int {
	if c := cmp.Compare(a.head[0], b.head[0]); c != 0 {
		return c
	}
	if c := cmp.Compare(a.head[1], b.head[1]); c != 0 {
		return c
	}
	if c := bytes.Compare(g.text(a), g.text(b)); c != 0 {
		return c
	}
	if c := cmp.Compare(b.standing, a.standing); c != 0 {
		return c
	}
	// What is left are equals; where the API lists them does not depend on
	// arrival.
	if c := strings.Compare(g.from[a.slice].Name, g.from[b.slice].Name); c != 0 {
		return c
	}
	return cmp.Compare(a.index, b.index)
}

func (g *gathering) endpoint(c *candidate) *SliceEndpoint {
	return &g.from[c.slice].Endpoints[c.index]
}

func (g *gathering) text(c *candidate) []byte {
	return g.texts[c.text : int(c.text)+int(c.textSize)]
}

func head(text []byte) [2]uint64 {
	var padded [16]byte
	copy(padded[:], text)
	return [2]uint64{
		binary.BigEndian.Uint64(padded[:8]),
		binary.BigEndian.Uint64(padded[8:]),
	}
}
