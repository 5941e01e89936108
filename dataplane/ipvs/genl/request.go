package genl

import (
	"net/netip"

	"github.com/sluice-proxy/sluice/dataplane"
)

// Request is one change, made by one of the functions below. The zero value is
// refused by the kernel.
type Request struct {
	command uint8
	service Service
	// destination is used by the commands about real servers.
	destination Destination
}

// NewService asks for a virtual server; refused when there is one (see Exists).
func NewService(s Service) Request { return Request{command: newService, service: s} }

// SetService asks to change all properties of a virtual server. Its real servers
// and their connections stay.
func SetService(s Service) Request { return Request{command: setService, service: s} }

// DelService asks to remove a virtual server with its real servers.
func DelService(f dataplane.Frontend) Request {
	return Request{command: deleteService, service: Service{Frontend: f}}
}

// NewDest asks for a real server to which packets are forwarded by masquerading;
// refused when there is one (see Exists), or no virtual server (see Missing).
func NewDest(f dataplane.Frontend, addr netip.AddrPort, weight uint32) Request {
	return about(newDestination, f, Destination{Addr: addr, Weight: weight})
}

// SetDest asks to change the weight of a real server, and its forwarding to
// masquerading.
func SetDest(f dataplane.Frontend, addr netip.AddrPort, weight uint32) Request {
	return about(setDestination, f, Destination{Addr: addr, Weight: weight})
}

// DelDest asks to remove a real server.
func DelDest(f dataplane.Frontend, addr netip.AddrPort) Request {
	return about(delDestination, f, Destination{Addr: addr})
}

func about(command uint8, f dataplane.Frontend, d Destination) Request {
	return Request{command: command, service: Service{Frontend: f}, destination: d}
}

// Frontend is that of the virtual server that the request is about.
func (r Request) Frontend() dataplane.Frontend { return r.service.Frontend }

// Destination is the address of the real server that the request is about; false
// when it is about the virtual server.
func (r Request) Destination() (netip.AddrPort, bool) {
	return r.destination.Addr, r.command >= newDestination
}

// String says what is asked for.
func (r Request) String() string {
	names := map[uint8]string{
		newService: "add virtual server ", setService: "change virtual server ", deleteService: "delete virtual server ",
		newDestination: "add real server ", setDestination: "change real server ", delDestination: "delete real server ",
	}
	name, ok := names[r.command]
	if !ok {
		return "nothing"
	}
	if addr, ok := r.Destination(); ok {
		name += addr.String() + " of "
	}
	return name + r.Frontend().String()
}

// appendTo adds the message to a buffer. The kind is the number of the family.
func (r Request) appendTo(b []byte, kind uint16, seq uint32) []byte {
	b, mark := open(b, kind, 0, seq, r.command)
	var full *Service
	if r.command == newService || r.command == setService {
		full = &r.service
	}
	b = appendFrontend(b, r.service.Frontend, full)
	if r.command >= newDestination {
		b = appendDestination(b, r.destination, r.command != delDestination)
	}
	return shut(b, mark)
}
