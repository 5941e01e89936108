package reduce

import (
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
)

// sliceEndpoints reduces the endpoints of a slice; those without a usable address
// are left out and the others keep their order.
func sliceEndpoints(n *notes, family service.Family, endpoints []discoveryv1.Endpoint) []service.SliceEndpoint {
	reduced := make([]service.SliceEndpoint, 0, len(endpoints))
	hints := newHintNames(endpoints)
	for i := range endpoints {
		e := &endpoints[i]
		addr, ok := endpointAddr(n, at("endpoints", i), family, e.Addresses)
		if !ok {
			continue
		}
		zones, nodes := hints.of(e)
		reduced = append(reduced, service.SliceEndpoint{
			Addr:        addr,
			NodeName:    intern(valueOr(e.NodeName, "")),
			Ready:       valueOr(e.Conditions.Ready, true),
			Serving:     valueOr(e.Conditions.Serving, true),
			Terminating: valueOr(e.Conditions.Terminating, false),
			ForZones:    zones,
			ForNodes:    nodes,
		})
	}
	return reduced
}

// endpointAddr reads the first address; by the API's rules the others are ways
// to the same endpoint and not looked at.
func endpointAddr(n *notes, where path, family service.Family, addresses []string) (netip.Addr, bool) {
	if len(addresses) == 0 {
		n.add(where.dot("addresses"), "empty; the endpoint is skipped")
		return netip.Addr{}, false
	}
	addr, ok := parseAddr(addresses[0])
	if !ok {
		n.add(where.dot("addresses[0]"), "%q is not an IP address; the endpoint is skipped", addresses[0])
		return netip.Addr{}, false
	}
	if service.FamilyOf(addr) != family {
		n.add(where.dot("addresses[0]"),
			"%s is not an %s address, as addressType says; the endpoint is skipped", addr, family)
		return netip.Addr{}, false
	}
	return addr, true
}

// hintNames is one array for all hint lists of a slice, since most endpoints
// have one hint and a list of its own would cost as much again.
type hintNames []string

func newHintNames(endpoints []discoveryv1.Endpoint) hintNames {
	count := 0
	for i := range endpoints {
		if hints := endpoints[i].Hints; hints != nil {
			count += len(hints.ForZones) + len(hints.ForNodes)
		}
	}
	return make(hintNames, 0, count)
}

// of gives the zone and node hints of an endpoint; nil means none.
func (h *hintNames) of(e *discoveryv1.Endpoint) (zones, nodes []string) {
	if e.Hints == nil {
		return nil, nil
	}
	start := len(*h)
	for i := range e.Hints.ForZones {
		*h = append(*h, intern(e.Hints.ForZones[i].Name))
	}
	zones = h.since(start)
	start = len(*h)
	for i := range e.Hints.ForNodes {
		*h = append(*h, intern(e.Hints.ForNodes[i].Name))
	}
	return zones, h.since(start)
}

// since is the list that was appended last. Its capacity is cut, so that nobody
// can write into the next one.
func (h *hintNames) since(start int) []string {
	end := len(*h)
	if start == end {
		return nil
	}
	return (*h)[start:end:end]
}

func valueOr[T any](value *T, missing T) T {
	if value == nil {
		return missing
	}
	return *value
}
