package relay

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-proxy/sluice/internal/host/holder"
	"github.com/sluice-proxy/sluice/service"
)

// ParsePlace is the reverse of [Place.String].
func ParsePlace(text string) (Place, error) {
	protocol, at, _ := strings.Cut(text, "/")
	p := Place{Protocol: service.TCP}
	switch protocol {
	case service.TCP.String():
	case service.UDP.String():
		p.Protocol = service.UDP
	default:
		return p, fmt.Errorf("%q: want tcp or udp, and an address", text)
	}
	var err error
	if p.At, err = netip.ParseAddrPort(at); err != nil {
		return p, fmt.Errorf("%q: %w", text, err)
	}
	return p, nil
}

// HolderMax bounds the searches for the holder of a port in one batch: the writer does nothing else
// meanwhile.
const HolderMax = 3

// DescribeHolder names the holder of a place's port, as far as this process can see it; empty if
// the port is free again. It looks at the network namespace of the calling thread.
func DescribeHolder(p Place) string {
	who, found := holder.Of(p.Protocol.String(), p.At)
	if !found {
		return ""
	}
	return fmt.Sprintf("port %d on %s is held by %s", p.At.Port(), p.At.Addr(), who)
}

// DeniedError says that there must be no connection to a target (Config.MayDial).
type DeniedError struct {
	Target netip.AddrPort
	Err    error
}

// Error names the target.
func (e *DeniedError) Error() string { return fmt.Sprintf("dial %s: %v", e.Target, e.Err) }

// Unwrap returns the reason.
func (e *DeniedError) Unwrap() error { return e.Err }

// check returns an error if there must be no connection to a target.
func (s *sockets) check(target netip.AddrPort) error {
	if err := s.mayDial(target.Addr().Unmap()); err != nil {
		return &DeniedError{target, err}
	}
	return nil
}

// OwnedError says why an object of a Service cannot be written.
type OwnedError interface {
	error
	Owner() service.Key
}

// RejectedError says which objects cannot be written for a reason of their own.
type RejectedError[E OwnedError] struct{ Failures []E }

// failuresShown bounds the message.
const failuresShown = 3

// Error returns the first reasons.
func (e *RejectedError[E]) Error() string {
	var texts []string
	for _, f := range e.Failures[:min(len(e.Failures), failuresShown)] {
		texts = append(texts, f.Error())
	}
	if more := len(e.Failures) - failuresShown; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the first reason.
func (e *RejectedError[E]) Unwrap() error { return e.Failures[0] }

// Suspects returns the owners of the objects.
func (e *RejectedError[E]) Suspects() []service.Key {
	keys := make([]service.Key, len(e.Failures))
	for i, f := range e.Failures {
		keys[i] = f.Owner()
	}
	return keys
}
