package dataplane

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

// Lead gives the element that an element of the nftables backend goes with: of all
// Services that want something about a frontend, only that which nobody older
// outranks at the lead gets it. False for an element on its own. It allocates
// nothing.
func (id ID) Lead() (ID, bool) {
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
	case "@frontends", "@nodeports", "@firewalled":
		return true
	default:
		return false
	}
}
