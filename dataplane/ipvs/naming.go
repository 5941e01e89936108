package ipvs

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Naming reads the identities of this backend's objects.
type Naming struct{}

// Naming implements dataplane.Renderer.
func (r *Renderer) Naming() dataplane.Naming { return Naming{} }

// Frontend implements dataplane.Naming: each virtual server is one.
func (Naming) Frontend(id dataplane.ID) (dataplane.Frontend, bool) {
	if id.Container != ContainerServer {
		return dataplane.Frontend{}, false
	}
	f, err := ParseServerID(id)
	return f, err == nil
}

// goesWith holds what entries go with, by the container of their identities, in both
// families.
var goesWith = func() map[string]company {
	found := make(map[string]company, len(service.Families)*len(kinds))
	for _, family := range service.Families {
		for _, k := range kinds {
			found[entriesPrefix+setName(family, k.name)] = k.goes
		}
	}
	return found
}()

// Lead implements dataplane.Naming.
func (Naming) Lead(id dataplane.ID) (dataplane.ID, bool) {
	if goesWith[id.Container] != withServer {
		return dataplane.ID{}, false
	}
	address, rest, _ := strings.Cut(id.Name, ",")
	transport, _, _ := strings.Cut(rest, ",")
	protocolText, portText, _ := strings.Cut(transport, ":")
	addr, err := netip.ParseAddr(address)
	port, portErr := strconv.ParseUint(portText, 10, 16)
	protocol, known := parseProtocol(protocolText)
	if err != nil || portErr != nil || !known {
		return dataplane.ID{}, false
	}
	return ServerID(dataplane.Frontend{Addr: addr, Port: uint16(port), Protocol: protocol}), true
}

// Leads implements dataplane.Naming.
func (Naming) Leads(id dataplane.ID) bool { return id.Container == ContainerServer }

// LedLead implements dataplane.Naming.
func (Naming) LedLead(dataplane.ID) (lead dataplane.ID, ok bool) { return lead, false }
