// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

// Server is one virtual server with its real servers, the body of an element in container
// "server". They are one object, so that if two Services have the same frontend, the older one
// gets it with its own endpoints.
type Server struct {
	wire.Service
	// Reals are sorted by the text of their addresses and ports, without duplicates. The weight is
	// the endpoint's. The kernel also has removed ones, with weight 0, which keep their connections.
	Reals []wire.Real
	Grace Grace
}

// Grace defines which real servers keep their connections when they are removed, and for how long. The kernel cannot
// store it, so the writer remembers it, and Read returns it. It is a part of the body, so that each change of it
// reaches the writer.
type Grace struct {
	// Drain is the deadline of the Service; not limited if the default of the mode applies.
	Drain service.Drain
	// Keeps has, for UDP, the endpoints that still serve but get no new flows here, sorted like Reals.
	Keeps []netip.AddrPort
}

// Any reports whether there is anything to remember.
func (g *Grace) Any() bool { return g.Drain.Limited || len(g.Keeps) > 0 }

// Object returns the server as an object. Equal servers have equal bodies.
func (s *Server) Object() dataplane.Object {
	return serverObject(s.Frontend, s.body())
}

func (s *Server) body() string {
	b := s.appendHead(make([]byte, 0, 32*(len(s.Reals)+1)))
	return string(s.Grace.append(appendReals(b, s.Reals)))
}

func serverObject(f service.Frontend, body string) dataplane.Object {
	return dataplane.Object{ID: ServerID(f), Kind: dataplane.Element, Body: body}
}

// appendHead appends the first line of the body: "SCHEDULER FLAGS TIMEOUT", with the flags
// in hexadecimal, for example "rr 0x1 10800". FreeBits follows if it is not 0, which is the case
// only for virtual servers of other programs.
func (s *Server) appendHead(b []byte) []byte {
	b = append(append(b, s.Scheduler...), " 0x"...)
	b = strconv.AppendUint(b, uint64(s.Flags), 16)
	b = strconv.AppendUint(append(b, ' '), uint64(s.Timeout), 10)
	if s.FreeBits != 0 {
		b = strconv.AppendUint(append(b, ' '), uint64(s.FreeBits), 10)
	}
	return b
}

// appendReals appends the other lines, "ADDR:PORT WEIGHT", each after a line break.
func appendReals(b []byte, reals []wire.Real) []byte {
	for _, r := range reals {
		b = r.Addr.AppendTo(append(b, '\n'))
		b = strconv.AppendUint(append(b, ' '), uint64(r.Weight), 10)
	}
	return b
}

// The first words of the lines of a Grace, which follow those of the real servers.
const (
	drainWord = "drain "
	keepsWord = "keeps "
)

// append appends the lines "drain DURATION" and "keeps ADDR:PORT", each after a line break.
func (g *Grace) append(b []byte) []byte {
	if g.Drain.Limited {
		b = append(append(append(b, '\n'), drainWord...), g.Drain.After.String()...)
	}
	for _, addr := range g.Keeps {
		b = addr.AppendTo(append(append(b, '\n'), keepsWord...))
	}
	return b
}

// parse parses one of these lines.
func (g *Grace) parse(line string) bool {
	if text, is := strings.CutPrefix(line, drainWord); is {
		after, err := time.ParseDuration(text)
		known := g.Any()
		g.Drain = service.Drain{Limited: true, After: after}
		return err == nil && !known && after.String() == text
	}
	text, is := strings.CutPrefix(line, keepsWord)
	addr, err := netip.ParseAddrPort(text)
	g.Keeps = append(g.Keeps, addr)
	return is && err == nil && addr.String() == text
}

// ParseServer is the reverse of Object.
func ParseServer(o *dataplane.Object) (Server, error) {
	frontend, err := ParseServerID(o.ID)
	if err != nil {
		return Server{}, err
	}
	s := Server{Service: wire.Service{Frontend: frontend}}
	head, reals, several := strings.Cut(o.Body, "\n")
	if !s.parseHead(head) {
		return Server{}, fmt.Errorf("virtual server %s: %q is not a scheduler, flags and a timeout", o.ID.Name, head)
	}
	if !several {
		return s, nil
	}
	s.Reals = make([]wire.Real, 0, strings.Count(reals, "\n")+1)
	for line := range strings.SplitSeq(reals, "\n") {
		r, ok := parseReal(line)
		switch {
		case ok && !s.Grace.Any():
			s.Reals = append(s.Reals, r)
		case !s.Grace.parse(line):
			return Server{}, fmt.Errorf("virtual server %s: %q is not a real server and its weight", o.ID.Name, line)
		}
	}
	return s, nil
}

func (s *Server) parseHead(line string) bool {
	words := strings.Split(line, " ")
	if len(words) < 3 || len(words) > 4 {
		return false
	}
	s.Scheduler = words[0]
	s.Flags = uint32(parsed(strings.TrimPrefix(words[1], "0x"), 16, 32))
	s.Timeout = uint32(parsed(words[2], 10, 32))
	if len(words) == 4 {
		s.FreeBits = uint8(parsed(words[3], 10, 8))
	}
	// Only the form that appendHead writes is accepted, so that equal servers have equal bodies.
	return s.Scheduler != "" && string(s.appendHead(nil)) == line
}

// parsed returns 0 for text that is not a number. The caller notices, because 0 prints differently.
func parsed(text string, base, bits int) uint64 {
	n, err := strconv.ParseUint(text, base, bits)
	if err != nil {
		return 0
	}
	return n
}

func parseReal(line string) (wire.Real, bool) {
	addr, weight, _ := strings.Cut(line, " ")
	at, err := netip.ParseAddrPort(addr)
	r := wire.Real{Addr: at, Weight: uint32(parsed(weight, 10, 32))}
	return r, err == nil && string(appendReals(nil, []wire.Real{r})[1:]) == line
}
