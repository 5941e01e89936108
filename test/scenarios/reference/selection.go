package reference

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// selection is which endpoints of a port this node sends to.
type selection struct {
	// cluster and local are those for the policies.
	cluster, local []endpoint
	// any is set if there is somebody in the whole cluster.
	any bool
}

// pick selects among all endpoints of a port, on a node in a zone.
func pick(all []endpoint, zone string) selection {
	ready := keep(all, func(e endpoint) bool { return e.ready })
	ending := keep(all, endpoint.fallback)
	here := func(e endpoint) bool { return e.local }
	s := selection{cluster: near(ready, zone), local: keep(ready, here), any: len(ready)+len(ending) > 0}
	if len(ready) == 0 {
		s.cluster = ending
	}
	if len(s.local) == 0 {
		s.local = keep(ending, here)
	}
	return s
}

// near gives those of the ready endpoints that are meant for this node, or else
// for its zone, or else all. One without a hint makes the hints of its kind void.
func near(ready []endpoint, zone string) []endpoint {
	for _, hint := range []struct {
		of   func(endpoint) []string
		mine string
	}{
		{func(e endpoint) []string { return e.nodes }, fixture.NodeName},
		{func(e endpoint) []string { return e.zones }, zone},
	} {
		without := func(e endpoint) bool { return len(hint.of(e)) == 0 }
		mine := keep(ready, func(e endpoint) bool { return hint.mine != "" && slices.Contains(hint.of(e), hint.mine) })
		if len(mine) > 0 && !slices.ContainsFunc(ready, without) {
			return mine
		}
	}
	return ready
}

func keep(all []endpoint, wanted func(endpoint) bool) []endpoint {
	var some []endpoint
	for _, e := range all {
		if wanted(e) {
			some = append(some, e)
		}
	}
	return some
}

// zone is that of the node, "" if it has none.
func (s *State) zone() string {
	if s.node == nil {
		return ""
	}
	return s.node.Labels[corev1.LabelTopologyZone]
}
