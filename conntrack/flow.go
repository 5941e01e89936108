package conntrack

import "net/netip"

// flow is one entry of the kernel's table, as far as it matters. Source
// addresses do not: a flow whose client is masqueraded is judged like any other.
type flow struct {
	// destination is where the client sends to.
	destination netip.AddrPort
	// answerer is where answers come from: the endpoint when the destination
	// was translated, and the destination itself when not.
	answerer netip.AddrPort
	// identity is what the kernel takes to delete exactly this entry. It is
	// valid during the call that hands the flow over.
	identity []byte
}

// translated tells whether something leads the flow elsewhere than its client
// believes.
func (f *flow) translated() bool { return f.answerer != f.destination }
