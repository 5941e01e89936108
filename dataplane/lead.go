package dataplane

import (
	"net/netip"
	"strconv"
	"strings"
)

// follower says how the names of a container's elements begin with a frontend, and
// in which container that frontend's own element is.
type follower struct {
	lead string
	// tail is what stands behind the frontend, in bytes. ranges names are twice a
	// frontend with an address behind it.
	tail   int
	ranges bool
}

// followers hold what there is about a frontend besides its own element. Slots and
// source ranges of several Services must not mix, and not all of them have the same
// name, so that they go with whoever has the frontend.
var followers = map[string]follower{
	"@cluster-endpoints-a":        {lead: "@frontends", tail: slotBytes},
	"@cluster-endpoints-b":        {lead: "@frontends", tail: slotBytes},
	"@cluster-endpoints-c":        {lead: "@frontends", tail: slotBytes},
	"@cluster-endpoints-d":        {lead: "@frontends", tail: slotBytes},
	"@cluster-endpoints-e":        {lead: "@frontends", tail: slotBytes},
	"@cluster-endpoints-f":        {lead: "@frontends", tail: slotBytes},
	"@cluster-endpoints-g":        {lead: "@frontends", tail: slotBytes},
	"@cluster-endpoints-h":        {lead: "@frontends", tail: slotBytes},
	"@local-endpoints":            {lead: "@frontends", tail: slotBytes},
	"@nodeport-cluster-endpoints": {lead: "@nodeports", tail: slotBytes},
	"@nodeport-local-endpoints":   {lead: "@nodeports", tail: slotBytes},
	"@firewalled":                 {lead: "@frontends"},
	"@allowed-sources":            {lead: "@firewalled", ranges: true},
}

// slotBytes is the room of the number of a slot.
const slotBytes = 4

// Lead gives the element that an element goes with: of all Services that want
// something about a frontend, only that which nobody older outranks at the lead
// gets it. False for an element on its own. For the nftables backend it allocates
// nothing.
func (id ID) Lead() (ID, bool) {
	if set, ok := strings.CutPrefix(id.Container, setsContainer); ok {
		return leadOfEntry(set, id.Name)
	}
	f, known := followers[id.Container]
	length := len(id.Name) - f.tail
	if f.ranges {
		// Both ends of the range have the address of the frontend and one of a
		// client; protocol and port stand between.
		between := setAddress.protocolWidth + setAddress.portWidth
		length = (len(id.Name)/2-between)/2 + between
	}
	if !known || length <= 0 || length > len(id.Name) {
		return ID{}, false
	}
	return ID{Container: f.lead, Name: id.Name[:length]}, true
}

// Leads tells whether other elements go with those of the container.
func (id ID) Leads() bool {
	switch id.Container {
	case "@frontends", "@nodeports", "@firewalled", serverContainer:
		return true
	default:
		return false
	}
}

// setsContainer stands before the name of a set of the ipvs backend.
const setsContainer = "set/"

// leadOfEntry gives the virtual server that an entry of a set goes with: what
// begins with address, protocol and port, as "10.0.0.1,tcp:80,203.0.113.0/25".
// Entries that are only an address or a port are on their own, and so are endpoints
// that reach themselves (KUBE-LOOP-BACK, KUBE-6-LOOP-BACK).
func leadOfEntry(set, name string) (ID, bool) {
	address, rest, found := strings.Cut(name, ",")
	if !found || strings.HasSuffix(set, "-LOOP-BACK") {
		return ID{}, false
	}
	transport, _, _ := strings.Cut(rest, ",")
	protocol, portText, found := strings.Cut(transport, ":")
	addr, err := netip.ParseAddr(address)
	port, portErr := strconv.ParseUint(portText, 10, 16)
	if !found || err != nil || portErr != nil {
		return ID{}, false
	}
	return ID{Container: serverContainer, Name: protocol + " " + netip.AddrPortFrom(addr, uint16(port)).String()}, true
}
