package conntrack

import (
	"context"
	"errors"
	"net/netip"
)

// kernel is what a sweep needs of the kernel's table of one family. netfilter is
// the real one.
type kernel interface {
	// flows hands over each UDP flow that the filter lets through, as it arrives
	// and keeping none, and tells whether the filter was honoured: a kernel that
	// knows none shows every flow. An error may come after some flows; one that
	// matches errInterrupted goes away by itself.
	flows(ctx context.Context, only filter, each func(*flow) error) (honoured bool, err error)
	// remove deletes flows by their identities, and tells for each what became of
	// it: nil when it was deleted, errGone when it was not there, another reason
	// when it stays. After an error, what became of them is unknown.
	remove(identities [][]byte) ([]error, error)
	// addresses lists the addresses of the host.
	addresses() ([]netip.Addr, error)
	// close gives up what was opened.
	close() error
}

var (
	// errInterrupted means that a listing may lack flows: the table was resized
	// meanwhile, or there was more to say than fitted.
	errInterrupted = errors.New("conntrack: the listing was interrupted")
	// errGone means that a flow has ended by itself.
	errGone = errors.New("conntrack: the flow is gone")
)

// filter says which flows are asked for: all of UDP when it is zero, otherwise
// those to an address and port, or to a port of any address.
type filter struct{ to frontend }

// filterFor gives the narrowest filter for the flows of a frontend. IPv6 addresses
// are left out: the kernel shows the flows to every address but that one
// (ctnetlink_filter_match_tuple, Linux 5.8 to 6.18 at least).
func filterFor(f frontend) filter {
	if f.Addr().Is6() {
		return filter{to: nodePort(f.Port())}
	}
	return filter{to: f}
}

// matches tells whether the filter lets flows to a destination, or those of a
// frontend, through.
func (f filter) matches(destination netip.AddrPort) bool {
	switch {
	case f == filter{}:
		return true
	case f.to.Addr().IsValid():
		return f.to == destination
	default:
		return f.to.Port() == destination.Port()
	}
}
