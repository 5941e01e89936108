package service

import "testing"

// TestTopology: what a node reads from the hints of endpoints. T1 to T9 are the
// worked examples of the behaviour that kube-proxy's users rely on.
func TestTopology(t *testing.T) {
	tests := []struct {
		id        string
		endpoints string
		zone      string
		want      string
		rule      Topology
	}{
		{"T1", "a R -/{za}; b R -/{zb}; c R -/{zc}", "za", "a", TopologySameZone},
		{"T2 one lacks a hint", "a R -/{za}; b R -/-; c R -/{za}", "za", "a b c", TopologyNone},
		{"T3 none ready for za", "a X -/{za}; b R -/{zb}", "za", "b", TopologyNone},
		{"T4", "a R {n1}/{za}; b R {n2}/{za}; c R {n3}/{zb}", "za", "a", TopologySameNode},
		{"T5 none ready for n1", "a X {n1}/{za}; b R {n2}/{za}; c R {n3}/{zb}", "za", "b", TopologySameZone},
		{"T6 one lacks a node hint", "a R {n1}/{za}; b R -/{za}; c R {n3}/{zb}", "za", "a b", TopologySameZone},
		{"T7 several zones", "a R -/{za,zb}; b R -/{zb}", "zb", "a b", TopologySameZone},
		{"T8 node without zone", "a R -/{za}; b R -/{zb}; c R -/{zc}", "", "a b c", TopologyNone},
		{"T9 fallback ignores hints", "a S -/{zb}", "za", "a", TopologyTerminating},

		{"no endpoints", "", "za", "", TopologyNone},
		{"unusable only", "a X -/{za}; b U -/{za}", "za", "", TopologyNone},
		{"unready without hints have no say", "a R -/{za}; b R -/{zb}; c U; d S; e X", "za", "a", TopologySameZone},
		{"node hint without zone hints", "a R {n1}/-; b R {n2}/-", "za", "a", TopologySameNode},
		{"node hints for others, no zone hints", "a R {n2}/-; b R {n3}/-", "za", "a b", TopologyNone},
		{"several nodes", "a R {n2,n1}/-; b R {n1}/-; c R {n3}/-", "za", "a b", TopologySameNode},
		{"ready while terminating counts as ready", "a P -/{za}; b R -/{zb}", "za", "a", TopologySameZone},
		{"ready while terminating can disable", "a P -/-; b R -/{za}", "za", "a b", TopologyNone},
		{"an empty hint is not the zone of a node without one", "a R -/{}; b R -/{za}", "", "a b", TopologyNone},
		{"where the endpoint runs does not matter", "n R -/{zb}; a R -/{za}", "za", "a", TopologySameZone},
		{"zone changed", "a R -/{za}; b R -/{zb}", "zb", "b", TopologySameZone},
	}
	for _, tt := range tests {
		t.Run(tt.id, func(t *testing.T) {
			eachFamily(t, func(t *testing.T, family Family) {
				node := facts()
				node.Zone = tt.zone
				_, port := resolveOne(t, family, newSpec(), tt.endpoints, node)
				if got := letters(port.Cluster); got != tt.want {
					t.Errorf("Cluster = %q, want %q", got, tt.want)
				}
				if port.Topology != tt.rule {
					t.Errorf("Topology = %q, want %q", port.Topology, tt.rule)
				}
			})
		})
	}
}

func TestTopologyString(t *testing.T) {
	want := map[Topology]string{
		TopologyNone:        "none",
		TopologySameNode:    "same node",
		TopologySameZone:    "same zone",
		TopologyTerminating: "serving while terminating",
	}
	for rule, text := range want {
		if rule.String() != text {
			t.Errorf("got %q, want %q", rule, text)
		}
	}
}
