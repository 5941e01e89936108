// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

// The containers of this backend's identities. Chains and hooks have those of
// package iptables/render: a table, or a table and a chain.
//
//	device    kube-ipvs0               the dummy device, owned
//	address   10.0.0.1                 an address of it, element
//	set       KUBE-CLUSTER-IP-0a1b2c   a set, owned; its body is its type and family
//	set/NAME  10.0.0.1,tcp:80          an entry of a set, element
//	server    tcp 10.0.0.1:80          a virtual server with its real servers, element
const (
	ContainerDevice  = "device"
	ContainerAddress = "address"
	ContainerSet     = "set"
	ContainerServer  = "server"
	// entriesPrefix precedes the name of a set in the container of its entries.
	entriesPrefix = ContainerSet + "/"
)

// Device is the name of the dummy device that makes Services' addresses local to the node.
const Device = wire.DeviceName

// DeviceID is the identity of the dummy device.
var DeviceID = dataplane.ID{Container: ContainerDevice, Name: Device}

// AddressID returns the identity of an address of the dummy device.
func AddressID(addr netip.Addr) dataplane.ID {
	return dataplane.ID{Container: ContainerAddress, Name: addr.String()}
}

// addressLinks refer to the device, which an address needs.
var addressLinks = dataplane.LinkTo(DeviceID)

// AddressObject returns an address of the dummy device as an object.
func AddressObject(addr netip.Addr) dataplane.Object {
	return dataplane.Object{ID: AddressID(addr), Kind: dataplane.Element, Links: addressLinks}
}

// ParseAddress is the reverse of AddressID.
func ParseAddress(id dataplane.ID) (netip.Addr, error) {
	addr, err := netip.ParseAddr(id.Name)
	if err != nil || id.Container != ContainerAddress {
		return netip.Addr{}, fmt.Errorf("object %q in %q is not an address of %s", id.Name, id.Container, Device)
	}
	return addr, nil
}

// ServerID returns the identity of a virtual server: "tcp 10.0.0.1:80" or
// "tcp [fd00::1]:80". The frontend must have an address.
func ServerID(f service.Frontend) dataplane.ID {
	b := append(make([]byte, 0, 32), f.Protocol.String()...)
	b = append(b, ' ')
	return dataplane.ID{Container: ContainerServer, Name: string(netip.AddrPortFrom(f.Addr, f.Port).AppendTo(b))}
}

// ParseServerID is the reverse of ServerID.
func ParseServerID(id dataplane.ID) (service.Frontend, error) {
	protocolText, addrText, _ := strings.Cut(id.Name, " ")
	protocol, known := service.ParseProtocol(protocolText)
	at, err := netip.ParseAddrPort(addrText)
	if id.Container != ContainerServer || !known || err != nil {
		return service.Frontend{}, fmt.Errorf("object %q in %q is not a virtual server", id.Name, id.Container)
	}
	return service.Frontend{Addr: at.Addr(), Port: at.Port(), Protocol: protocol}, nil
}

// entriesMax is the capacity of hash sets. Their memory depends only on their actual entries.
const entriesMax = 1 << 20

// setFamilies are the families of the addresses in sets.
var setFamilies = service.PerFamily[wire.Family]{wire.Inet, wire.Inet6}

// newSet returns the definition of a set of addresses of a family, or of ports.
func newSet(family service.Family, name string, kind wire.SetType) wire.SetSpec {
	if kind == wire.BitmapPort {
		return wire.SetSpec{Name: name, Type: kind}
	}
	return wire.SetSpec{Name: name, Type: kind, Family: setFamilies[family], MaxElem: entriesMax}
}

// SetID returns the identity of a set by its kernel name.
func SetID(name string) dataplane.ID { return dataplane.ID{Container: ContainerSet, Name: name} }

// SetObject returns a set as an object. Its body is the type and family.
func SetObject(s wire.SetSpec) dataplane.Object {
	return dataplane.Object{ID: SetID(s.Name), Kind: dataplane.Owned, Body: s.String()}
}

// ParseSet is the reverse of SetObject.
func ParseSet(o *dataplane.Object) (wire.SetSpec, error) {
	kind, familyText, _ := strings.Cut(o.Body, " ")
	family := service.IPv4
	if familyText == wire.Inet6.String() {
		family = service.IPv6
	}
	s := newSet(family, o.ID.Name, wire.SetType(kind))
	if o.ID.Container != ContainerSet || !s.Type.Known() || s.String() != o.Body {
		return wire.SetSpec{}, fmt.Errorf("object %q in %q: %q is not the type and family of a set",
			o.ID.Name, o.ID.Container, o.Body)
	}
	return s, nil
}

// EntryObjects returns the entries of a set, which is given by its kernel name, as objects.
func EntryObjects(set string, entries []wire.Entry) []dataplane.Object {
	place := placeOf(set)
	objects := make([]dataplane.Object, len(entries))
	for i, e := range entries {
		objects[i] = place.object(e)
	}
	return objects
}

// object returns an entry of the set as an object. Its name is the text that ipset(8) prints.
func (p setPlace) object(e wire.Entry) dataplane.Object {
	return dataplane.Object{
		ID:    dataplane.ID{Container: p.container, Name: e.String()},
		Kind:  dataplane.Element,
		Links: p.links,
	}
}

// EntrySet returns the kernel name of the set to which an entry belongs, or false for other
// objects. With the type of that set, wire.ParseEntry parses the entry's name.
func EntrySet(id dataplane.ID) (set string, ok bool) {
	return strings.CutPrefix(id.Container, entriesPrefix)
}

// Naming reads the identities of this backend's objects.
type Naming struct{}

// Naming implements dataplane.Renderer.
func (r *Renderer) Naming() dataplane.Naming { return Naming{} }

// ofFrontend has the containers of entries that begin with a frontend, in both families.
var ofFrontend = func() map[string]bool {
	found := make(map[string]bool, len(service.Families)*len(kinds))
	for _, family := range service.Families {
		for _, k := range kinds {
			found[entriesPrefix+SetName(family, k.name)] = k.goes == withServer
		}
	}
	return found
}()

// Frontend implements dataplane.Naming. It returns the frontend of a virtual server, or of an entry of one.
func (Naming) Frontend(id dataplane.ID) (f service.Frontend, ok bool) {
	if id.Container == ContainerServer {
		f, err := ParseServerID(id)
		return f, err == nil
	}
	if !ofFrontend[id.Container] {
		return f, false
	}
	address, rest, _ := strings.Cut(id.Name, ",")
	transport, _, _ := strings.Cut(rest, ",")
	protocolText, portText, _ := strings.Cut(transport, ":")
	addr, err := netip.ParseAddr(address)
	port, portErr := strconv.ParseUint(portText, 10, 16)
	protocol, known := service.ParseProtocol(protocolText)
	if err != nil || portErr != nil || !known {
		return f, false
	}
	return service.Frontend{Addr: addr, Port: uint16(port), Protocol: protocol}, true
}

// Stage implements dataplane.Naming.
func (Naming) Stage(id dataplane.ID) dataplane.Stage {
	switch id.Container {
	case ContainerDevice:
		return dataplane.StageEntry
	case ContainerServer:
		return dataplane.StageFrontend
	}
	return dataplane.StageNone
}

// Sends implements dataplane.Naming. A real server of weight 0 gets no new connections.
func (Naming) Sends(o *dataplane.Object, each func(netip.AddrPort)) {
	if o.ID.Container != ContainerServer {
		return
	}
	_, reals, _ := strings.Cut(o.Body, "\n")
	for line := range strings.SplitSeq(reals, "\n") {
		addr, weight, _ := strings.Cut(line, " ")
		if at, err := netip.ParseAddrPort(addr); err == nil && weight != "0" {
			each(at)
		}
	}
}
