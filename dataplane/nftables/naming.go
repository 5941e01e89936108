package nftables

import (
	"net/netip"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// role is what the elements of a shared set are to a frontend. The zero value is none:
// a shared set that states no role fails a test.
type role uint8

const (
	// frontends hold one element for each frontend that is served or refused; its key
	// is the frontend.
	frontends role = iota + 1
	// follows: the elements come along with one whose key theirs begins with. Slots and
	// source ranges of several Services must not mix, and not all of them have the same
	// key, so they go with whoever has the frontend.
	follows
	// shared elements are facts about pods and addresses, whichever Service wants them.
	shared
)

// The containers of elements that others follow.
const (
	inFrontends  = elementsOf + mapFrontends
	inNodePorts  = elementsOf + mapNodePorts
	inFirewalled = elementsOf + setFirewalled
)

// setIn holds the shared sets by the containers of their elements.
var setIn = map[string]*set{}

// transportBytes is the room of protocol and port in a key.
const transportBytes = 2 * registerBytes

// Naming reads the identities of this backend's elements. It allocates nothing.
type Naming struct{}

// Naming implements dataplane.Renderer.
func (r *Renderer) Naming() dataplane.Naming { return Naming{} }

// Frontend implements dataplane.Naming.
func (Naming) Frontend(id dataplane.ID) (dataplane.Frontend, bool) {
	s := setIn[id.Container]
	at := len(id.Name) - transportBytes
	if s == nil || s.role != frontends || at < 0 {
		return dataplane.Frontend{}, false
	}
	var f dataplane.Frontend
	ok := at == 0
	if s.key[0] == fieldDaddr { // a node port has no address
		f.Addr, ok = netip.AddrFromSlice([]byte(id.Name[:at]))
	}
	if !ok {
		return dataplane.Frontend{}, false
	}
	port := id.Name[at+registerBytes:]
	f.Port = uint16(port[0])<<8 | uint16(port[1])
	for _, p := range [...]service.Protocol{service.TCP, service.UDP, service.SCTP} {
		if p.Number() == id.Name[at] {
			f.Protocol = p
			return f, true
		}
	}
	return dataplane.Frontend{}, false
}

// Lead implements dataplane.Naming.
func (Naming) Lead(id dataplane.ID) (dataplane.ID, bool) {
	s := setIn[id.Container]
	if s == nil || s.role != follows {
		return dataplane.ID{}, false
	}
	length := len(id.Name)
	switch {
	case s.ranges:
		// Both ends have the address of the frontend and one of a client; protocol and
		// port stand between.
		length = (length/2-transportBytes)/2 + transportBytes
	case s.key[len(s.key)-1] == fieldSlot:
		length -= registerBytes
	}
	if length <= 0 || length > len(id.Name) {
		return dataplane.ID{}, false
	}
	return dataplane.ID{Container: s.lead, Name: id.Name[:length]}, true
}

// Leads implements dataplane.Naming.
func (Naming) Leads(id dataplane.ID) bool {
	switch id.Container {
	case inFrontends, inNodePorts, inFirewalled:
		return true
	default:
		return false
	}
}

// LedLead implements dataplane.Naming: a Service may limit the sources of a frontend
// that it does not serve.
func (Naming) LedLead(id dataplane.ID) (dataplane.ID, bool) {
	return dataplane.ID{Container: inFirewalled, Name: id.Name}, id.Container == inFrontends
}
