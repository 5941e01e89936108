package play

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/cluster"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// target is where a question goes:
//
//	cluster[:port], t.cluster[:port]   the ClusterIP of a Service
//	nodeport                           the node's address at 30080
//	NAME[:port]                        an address of the fixture, or a literal one
//
// followed by /udp or /sctp for another protocol than TCP. The port is 80 if it is
// not given.
type target struct {
	// service is set for a ClusterIP, name for everything else.
	service, name string
	port          uint16
	protocol      service.Protocol
}

var protocols = map[string]service.Protocol{"tcp": service.TCP, "udp": service.UDP, "sctp": service.SCTP}

func parseTarget(word string) (target, error) {
	t := target{port: fixture.ServicePort, protocol: service.TCP}
	place, protocol, ok := strings.Cut(word, "/")
	if ok {
		if t.protocol, ok = protocols[protocol]; !ok {
			return t, fmt.Errorf("target %s: %q: want tcp, udp or sctp", word, protocol)
		}
	}
	if literal, err := netip.ParseAddrPort(place); err == nil {
		t.name, t.port = literal.Addr().String(), literal.Port()
		return t, nil
	}
	name, port, ok := strings.Cut(place, ":")
	if ok {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return t, fmt.Errorf("target %s: port: %w", word, err)
		}
		t.port = uint16(n)
	}
	switch of, isCluster := strings.CutSuffix(name, "cluster"); {
	case name == "nodeport":
		t.name = "node"
		if !ok {
			t.port = fixture.NodePort
		}
	case name == "cluster":
		t.service = cluster.Main
	case isCluster && strings.HasSuffix(of, "."):
		t.service = strings.TrimSuffix(of, ".")
	default:
		t.name = name
		_, err := fixture.Address(service.IPv4, name)
		return t, err
	}
	return t, nil
}

func (t target) resolve(s *Stage, family service.Family) (netip.AddrPort, error) {
	if t.service != "" {
		a, err := s.serviceIP(t.service, family)
		return netip.AddrPortFrom(a, t.port), err
	}
	a, err := fixture.Address(family, t.name)
	return netip.AddrPortFrom(a, t.port), err
}
