package ipvs

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// The containers of this backend's identities. Chains and hooks have those of
// package iptables: a table, or a table and a chain.
//
//	device    kube-ipvs0               the dummy device, owned
//	address   10.0.0.1                 an address of it, element
//	set       KUBE-CLUSTER-IP          a set, owned; its body is its type
//	set/NAME  10.0.0.1,tcp:80          an entry of a set, element
//	server    tcp 10.0.0.1:80          a virtual server with its real servers, element
const (
	ContainerDevice  = "device"
	ContainerAddress = "address"
	ContainerSet     = "set"
	ContainerServer  = "server"
	// entriesPrefix goes before the name of the set that holds entries.
	entriesPrefix = ContainerSet + "/"
)

// Device is the name of the dummy device that makes Services' addresses local to
// the node.
const Device = "kube-ipvs0"

// DeviceID is the identity of the dummy device.
var DeviceID = dataplane.ID{Container: ContainerDevice, Name: Device}

// AddressID is the identity of an address of the dummy device.
func AddressID(addr netip.Addr) dataplane.ID {
	return dataplane.ID{Container: ContainerAddress, Name: addr.String()}
}

// ParseAddress gives the address that an identity stands for.
func ParseAddress(id dataplane.ID) (netip.Addr, error) {
	addr, err := netip.ParseAddr(id.Name)
	if err != nil || id.Container != ContainerAddress {
		return netip.Addr{}, fmt.Errorf("object %q in %q is no address of %s", id.Name, id.Container, Device)
	}
	return addr, nil
}

// ServerID is the identity of a virtual server: "tcp 10.0.0.1:80" or
// "tcp [fd00::1]:80". The frontend has an address.
func ServerID(f dataplane.Frontend) dataplane.ID {
	b := append(make([]byte, 0, 32), f.Protocol.String()...)
	b = append(b, ' ')
	return dataplane.ID{Container: ContainerServer, Name: string(netip.AddrPortFrom(f.Addr, f.Port).AppendTo(b))}
}

// ParseServerID gives the frontend that an identity stands for.
func ParseServerID(id dataplane.ID) (dataplane.Frontend, error) {
	protocolText, addrText, _ := strings.Cut(id.Name, " ")
	protocol, known := parseProtocol(protocolText)
	at, err := netip.ParseAddrPort(addrText)
	if id.Container != ContainerServer || !known || err != nil {
		return dataplane.Frontend{}, fmt.Errorf("object %q in %q is no virtual server", id.Name, id.Container)
	}
	return dataplane.Frontend{Addr: at.Addr(), Port: at.Port(), Protocol: protocol}, nil
}

func parseProtocol(text string) (service.Protocol, bool) {
	for _, p := range [...]service.Protocol{service.TCP, service.UDP, service.SCTP} {
		if p.String() == text {
			return p, true
		}
	}
	return 0, false
}
