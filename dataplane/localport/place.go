package localport

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// container is the container of all objects of this domain.
const container = "listener"

// place is where a listener listens; it is the identity of an object.
type place struct {
	// protocol is TCP or UDP.
	protocol service.Protocol
	at       netip.AddrPort
}

// String gives the object's name, for example "tcp/127.0.0.1:30080".
func (p place) String() string { return p.protocol.String() + "/" + p.at.String() }

func (p place) id() dataplane.ID { return dataplane.ID{Container: container, Name: p.String()} }

// parsePlace is the reverse of id.
func parsePlace(id dataplane.ID) (place, error) {
	protocol, at, _ := strings.Cut(id.Name, "/")
	p := place{protocol: service.TCP}
	switch protocol {
	case service.TCP.String():
	case service.UDP.String():
		p.protocol = service.UDP
	default:
		return p, fmt.Errorf("object %s %q: want tcp or udp, and an address", id.Container, id.Name)
	}
	var err error
	if p.at, err = netip.ParseAddrPort(at); err != nil {
		return p, fmt.Errorf("object %s %q: %w", id.Container, id.Name, err)
	}
	return p, nil
}

// bodyPrefix begins every body; the target follows.
const bodyPrefix = "to "

// body is the content of an object: where the listener forwards to, for example
// "to 192.0.2.10:30080".
func body(target netip.AddrPort) string { return bodyPrefix + target.String() }

// parseBody is the reverse of body. A target on the loopback interface is
// refused: a listener would forward to itself, without end.
func parseBody(text string) (netip.AddrPort, error) {
	rest, found := strings.CutPrefix(text, bodyPrefix)
	target, err := netip.ParseAddrPort(rest)
	if !found || err != nil || target.Addr().IsLoopback() {
		return target, fmt.Errorf("content %q: want %q and an address off the loopback interface, with a port", text, bodyPrefix)
	}
	return target, nil
}

// object puts an object together.
func object(p place, target netip.AddrPort) dataplane.Object {
	return dataplane.Object{ID: p.id(), Kind: dataplane.Element, Body: body(target)}
}
