package traffic

import (
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// Port is a port of a Service.
type Port struct {
	Service service.Key
	// Name may be empty.
	Name string
}

// Ports has the Service port that owns each frontend. It takes time and memory for each Service, so it is made
// for one reading, and never for a change.
type Ports map[service.Frontend]Port

// Add adds the frontends that a Service owns. The spec may be nil.
func (p Ports) Add(key service.Key, spec *service.Spec) {
	spec.Claims(func(family service.Family, f service.Frontend, _ service.ClaimKind) {
		if _, denied := spec.DeniedBy(family, f); denied {
			return
		}
		at := slices.IndexFunc(spec.Ports, func(p service.Port) bool {
			return p.Protocol == f.Protocol && (f.Addr.IsValid() && p.Port == f.Port || !f.Addr.IsValid() && p.NodePort == f.Port)
		})
		p[f] = Port{key, spec.Ports[at].Name}
	})
}

// protocols are those of Services.
var protocols = [...]service.Protocol{service.TCP, service.UDP, service.SCTP}

// Of returns the frontend that a connection to a destination uses, and the port that owns it. The protocol is
// its IP protocol number.
func (p Ports) Of(protocol uint8, to netip.AddrPort) (f service.Frontend, port Port, ok bool) {
	for _, of := range protocols {
		if of.Number() != protocol {
			continue
		}
		f = service.Frontend{Addr: to.Addr(), Port: to.Port(), Protocol: of}
		if port, ok = p[f]; !ok {
			f.Addr = netip.Addr{}
			port, ok = p[f]
		}
	}
	return f, port, ok
}
