// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"
	"testing"
)

// outcome is what happens to a sender's packets: the endpoints it may reach, or
// "drop", or "reject".
func outcome(port *PortView, serves bool, set []Endpoint) string {
	switch {
	case !port.HasAny:
		return "reject"
	case !serves:
		return "drop"
	default:
		return letters(set)
	}
}

func internalOutcome(port *PortView) string {
	if port.InternalLocal {
		return outcome(port, port.ServesInternal(), port.Local)
	}
	return outcome(port, port.ServesInternal(), port.Cluster)
}

// outsideOutcome is for clients that are neither pods nor this node.
func outsideOutcome(port *PortView) string {
	if port.ExternalLocal {
		return outcome(port, port.ServesExternal(), port.Local)
	}
	return outcome(port, port.ServesExternal(), port.Cluster)
}

// insideOutcome is for pods and this node, which are short-circuited to the
// Cluster endpoints of external frontends.
func insideOutcome(port *PortView) string {
	return outcome(port, len(port.Cluster) > 0, port.Cluster)
}

// policySpec is a Service with the given policies. An external policy makes it a
// LoadBalancer with a node port and, for Local, a health-check node port.
func policySpec(internal, external string) *Spec {
	spec := newSpec()
	spec.InternalLocal = internal == "Local"
	if external == "-" {
		return spec
	}
	spec.Ports[0].NodePort = 30080
	if external == "Local" {
		spec.ExternalLocal = true
		spec.HealthCheckNodePort = 32000
	}
	return spec
}

// TestResolve_PolicyAndTermination compares the endpoints for each kind of traffic with a table of traffic policies and
// terminating endpoints.
func TestResolve_PolicyAndTermination(t *testing.T) {
	const none = "-"
	tests := []struct {
		id                 string
		internal, external string
		endpoints          string
		clusterIP          string
		outside            string
		pod                string
		ready              int
	}{
		{"P1", "Cluster", none, "n R; f R", "f n", none, none, 0},
		{"P2", "Local", none, "n R; f R", "n", none, none, 0},
		{"P3", "Local", none, "f R", "drop", none, none, 0},
		{"P4", "Local", none, "f X", "reject", none, none, 0},
		{"P5", "Local", none, "f S", "drop", none, none, 0},
		{"P6", "Cluster", "Local", "n R; f R", "f n", "n", "f n", 1},
		{"P7", "Cluster", "Local", "f R", "f", "drop", "f", 0},
		{"P8", "Cluster", "Local", "n S; f R", "f", "n", "f", 0},
		{"P9", "Cluster", "Local", "n S; f S", "f n", "n", "f n", 0},
		{"P10", "Cluster", "Local", "f S", "f", "drop", "f", 0},
		{"P11", "Cluster", "Cluster", "n S; f R", "f", "f", "f", 0},
		{"P12", "Cluster", "Cluster", "n S; f S", "f n", "f n", "f n", 0},
		{"P13", "Local", "Local", "n R; f R", "n", "n", "f n", 1},
		{"P14", "Local", "Cluster", "n R; f R", "n", "f n", "f n", 0},
		{"P15", "Local", "Local", "f R", "drop", "drop", "f", 0},
		{"P16", "Cluster", "Local", "n X; f X", "reject", "reject", "reject", 0},
		{"P17", "Cluster", "Local", "n R -/{zb}; f R -/{za}", "f", "n", "f", 1},
		{"P18", "Cluster", "Cluster", "n U", "reject", "reject", "reject", 0},

		{"terminating and not serving", "Cluster", "Cluster", "n X; f S", "f", "f", "f", 0},
		{"ready while terminating is ready", "Cluster", "Local", "n P; f R", "f n", "n", "f n", 1},
		{"local ready beats local terminating", "Local", none, "n R; f S", "n", none, none, 0},
		{"no endpoints", "Cluster", "Cluster", "", "reject", "reject", "reject", 0},
		{"no endpoints, Local", "Local", "Local", "", "reject", "reject", "reject", 0},
	}
	for _, tt := range tests {
		t.Run(tt.id, func(t *testing.T) {
			eachFamily(t, func(t *testing.T, family Family) {
				view, port := resolveOne(t, family, policySpec(tt.internal, tt.external), tt.endpoints, facts())
				if got := internalOutcome(port); got != tt.clusterIP {
					t.Errorf("ClusterIP: %q, want %q", got, tt.clusterIP)
				}
				if got := view.ReadyLocal[family]; got != tt.ready {
					t.Errorf("ReadyLocal = %d, want %d", got, tt.ready)
				}
				if tt.external == none {
					return
				}
				if got := outsideOutcome(port); got != tt.outside {
					t.Errorf("outside: %q, want %q", got, tt.outside)
				}
				if got := insideOutcome(port); got != tt.pod {
					t.Errorf("pod to external: %q, want %q", got, tt.pod)
				}
			})
		})
	}
}

// TestResolve_LocalPrefersReady: the Local policy uses terminating endpoints only if no local endpoint is ready.
func TestResolve_LocalPrefersReady(t *testing.T) {
	eachFamily(t, func(t *testing.T, family Family) {
		slice := newSlice(t, family, "s1", "a R; b S; c R; d S")
		for i := range slice.Endpoints {
			slice.Endpoints[i].Location = &Location{NodeName: thisNode}
		}
		spec := policySpec("Local", "-")
		view := Resolve(testKey, spec, []*Slice{slice}, facts())
		if got := letters(view.Ports[family][0].Local); got != "a c" {
			t.Errorf("Local = %q, want the ready ones, \"a c\"", got)
		}
		slice.Endpoints[0].Ready, slice.Endpoints[2].Ready = false, false
		view = Resolve(testKey, spec, []*Slice{slice}, facts())
		if got := letters(view.Ports[family][0].Local); got != "b d" {
			t.Errorf("Local = %q, want the terminating ones, \"b d\"", got)
		}
	})
}

// TestResolve_EndpointWithoutNodeNotLocal: an endpoint without a node name is not local.
func TestResolve_EndpointWithoutNodeNotLocal(t *testing.T) {
	eachFamily(t, func(t *testing.T, family Family) {
		slice := newSlice(t, family, "s1", "a R")
		slice.Endpoints[0].Location = &Location{NodeName: ""}
		view := Resolve(testKey, policySpec("Local", "-"), []*Slice{slice}, facts())
		port := &view.Ports[family][0]
		if got := internalOutcome(port); got != "drop" {
			t.Errorf("ClusterIP: %q, want \"drop\"", got)
		}
		if port.Cluster != nil {
			t.Errorf("Cluster = %v, want nil: no frontend uses it", port.Cluster)
		}
	})
}

// TestResolve_ReadyLocalCountsAddresses: ReadyLocal counts each ready local address once, however many ports it has,
// and is 0 without a health check node port.
func TestResolve_ReadyLocalCountsAddresses(t *testing.T) {
	eachFamily(t, func(t *testing.T, family Family) {
		spec := policySpec("Cluster", "Local")
		spec.Ports = append(spec.Ports, Port{Name: "p81", Protocol: TCP, Port: 81})
		two := newSlice(t, family, "s1", "n R; a R; b S; c P; d R")
		for i := range two.Endpoints {
			two.Endpoints[i].Location = &Location{NodeName: thisNode}
		}
		two.Endpoints[4].Location = &Location{NodeName: "n2"}
		two.Ports = append(two.Ports, SlicePort{Name: "p81", Protocol: TCP, Port: 8081})
		more := newSlice(t, family, "s2", "n R")
		more.Ports[0].Port = 9090
		view := Resolve(testKey, spec, []*Slice{two, more}, facts())
		want := PerFamily[int]{}
		want[family] = 3 // n, a and c: n once, though it has three ports.
		if view.ReadyLocal != want {
			t.Errorf("ReadyLocal = %v, want %v", view.ReadyLocal, want)
		}

		spec.HealthCheckNodePort = 0
		if view := Resolve(testKey, spec, []*Slice{two, more}, facts()); view.ReadyLocal[family] != 0 {
			t.Errorf("without a health-check node port: ReadyLocal = %v, want 0", view.ReadyLocal)
		}
	})
}

// TestResolve_ServingForEstablishedFlows: Serving contains every serving endpoint of a UDP port, regardless of its
// hints, and none of TCP and SCTP ports.
func TestResolve_ServingForEstablishedFlows(t *testing.T) {
	tests := []struct {
		name      string
		protocol  Protocol
		endpoints string
		want      string
	}{
		{"all that serve", UDP, "a R; b S; c U; d X; n P", "a b c n"},
		{"hints never cut a flow", UDP, "a R -/{za}; b R -/{zb}", "a b"},
		{"nothing serves", UDP, "a X; b T; c X", ""},
		{"one serves", UDP, "a X; b U", "b"},
		{"TCP flows end by themselves", TCP, "a R", ""},
		{"SCTP flows end by themselves", SCTP, "a R", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachFamily(t, func(t *testing.T, family Family) {
				spec := newSpec()
				spec.Ports[0].Protocol = tt.protocol
				slice := newSlice(t, family, "s1", tt.endpoints)
				slice.Ports[0].Protocol = tt.protocol
				view := Resolve(testKey, spec, []*Slice{slice}, facts())
				if got := letters(view.Ports[family][0].Serving); got != tt.want {
					t.Errorf("Serving = %q, want %q", got, tt.want)
				}
			})
		})
	}
}

// TestResolve_EqualSetsShareMemory: the Local and Serving sets share the memory of an equal Cluster set.
func TestResolve_EqualSetsShareMemory(t *testing.T) {
	spec := policySpec("Local", "Local")
	spec.Ports[0].Protocol = UDP
	slice := newSlice(t, IPv4, "s1", "a R; b R")
	slice.Ports[0].Protocol = UDP
	for i := range slice.Endpoints {
		slice.Endpoints[i].Location = &Location{NodeName: thisNode}
	}
	view := Resolve(testKey, spec, []*Slice{slice}, facts())
	port := &view.Ports[IPv4][0]
	for name, set := range map[string][]Endpoint{"Local": port.Local, "Serving": port.Serving} {
		if len(set) != 2 || &set[0] != &port.Cluster[0] {
			t.Errorf("%s = %v does not share the memory of Cluster = %v", name, set, port.Cluster)
		}
	}
}

// TestResolve_NodeInSourceRanges: NodeInSourceRanges is true if the node's own address is in the source ranges.
func TestResolve_NodeInSourceRanges(t *testing.T) {
	ranges := func(texts ...string) (list []netip.Prefix) {
		for _, text := range texts {
			list = append(list, netip.MustParsePrefix(text))
		}
		return list
	}
	tests := []struct {
		name   string
		ranges []netip.Prefix
		nodeIP string
		want   bool
	}{
		{"inside", ranges("203.0.113.0/25", "192.168.0.0/24"), "192.168.0.2", true},
		{"outside", ranges("203.0.113.0/25"), "192.168.0.2", false},
		{"no ranges", nil, "192.168.0.2", false},
		{"node address unknown", ranges("192.168.0.0/24"), "", false},
		{"IPv6", ranges("fd00:192:168::/64"), "fd00:192:168::2", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			node, family := facts(), IPv4
			node.NodeIPs = PerFamily[netip.Addr]{}
			if tt.nodeIP != "" {
				ip := netip.MustParseAddr(tt.nodeIP)
				family = FamilyOf(ip)
				node.NodeIPs[family] = ip
			}
			spec := newSpec()
			spec.SourceRanges[family] = tt.ranges
			view := Resolve(testKey, spec, nil, node)
			if got := view.Ports[family][0].NodeInSourceRanges; got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestResolve_Topology compares the endpoints that a node chooses by topology hints with a table. T1 to T9 are worked
// examples of the behavior that users of kube-proxy rely on.
func TestResolve_Topology(t *testing.T) {
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

func TestTopology_String(t *testing.T) {
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

// TestGather_Duplicates: of several entries with the same address and port in one Service port, the entry in the best
// state remains.
func TestGather_Duplicates(t *testing.T) {
	tests := []struct {
		name  string
		known string
		other string
		want  standing
	}{
		{"running over terminating", "a R", "a S", readyRunning},
		{"ready over unready (kubernetes issue 135593)", "a R", "a U", readyRunning},
		{"ready over nothing", "a R", "a X", readyRunning},
		{"running over ready while terminating", "a R", "a P", readyRunning},
		{"ready while terminating over unready", "a P", "a U", readyTerminating},
		{"terminating over unready: it still serves the address", "a S", "a U", servingTerminating},
		{"terminating over nothing", "a S", "a X", servingTerminating},
		{"unready over nothing", "a U", "a X", unready},
		{"the same twice", "a R", "a R", readyRunning},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachFamily(t, func(t *testing.T, family Family) {
				known := newSlice(t, family, "s1", tt.known)
				other := newSlice(t, family, "s2", tt.other)
				both := newSlice(t, family, "s3", tt.known+";"+tt.other)
				port := &newSpec().Ports[0]
				for _, from := range [][]*Slice{{known, other}, {other, known}, {both}, {known, other, both}} {
					var g gathering
					g.gather(family, port, from, thisNode)
					if len(g.candidates) != 1 {
						t.Fatalf("%d candidates, want 1", len(g.candidates))
					}
					if got := g.candidates[0].standing; got != tt.want {
						t.Errorf("standing %d, want %d", got, tt.want)
					}
				}
			})
		})
	}
}

// TestGather_EqualDuplicates: of equally good duplicates, the first entry of the first slice by name remains, with its
// own node and hints.
func TestGather_EqualDuplicates(t *testing.T) {
	eachFamily(t, func(t *testing.T, family Family) {
		remote := newSlice(t, family, "a-slice", "a R {n2}/{zb}; a R {n1}/{za}")
		local := newSlice(t, family, "b-slice", "a R {n1}/{za}")
		local.Endpoints[0].Location = &Location{NodeName: thisNode}
		for _, from := range [][]*Slice{{remote, local}, {local, remote}} {
			var g gathering
			g.gather(family, &newSpec().Ports[0], from, thisNode)
			if len(g.candidates) != 1 {
				t.Fatalf("%d candidates, want 1", len(g.candidates))
			}
			c := &g.candidates[0]
			if c.local || g.from[c.slice] != remote || c.index != 0 {
				t.Errorf("kept %+v of slice %s, want the first of a-slice", g.endpoint(c), g.from[c.slice].Name)
			}
		}
	})
}

// TestResolve_SlicePortsByNameAndProtocol: the ports of a slice match a Service port by name and protocol.
func TestResolve_SlicePortsByNameAndProtocol(t *testing.T) {
	eachFamily(t, func(t *testing.T, family Family) {
		slice := func(name string, ports ...SlicePort) *Slice {
			s := newSlice(t, family, name, "a R; b R")
			s.Ports = ports
			return s
		}
		other := slice("other-family", SlicePort{"dns", UDP, 1})
		other.Family = 1 - family
		from := []*Slice{
			slice("s1", SlicePort{"dns", UDP, 5353}, SlicePort{"dns", TCP, 5354}, SlicePort{"", UDP, 7}),
			slice("s2", SlicePort{"dns", UDP, 5355}, SlicePort{"dns-tcp", UDP, 9}),
			slice("s3"),
			other,
		}
		for _, tt := range []struct {
			port Port
			want []uint16
		}{
			{Port{Name: "dns", Protocol: UDP, Port: 53}, []uint16{5353, 5355, 5353, 5355}},
			{Port{Name: "dns", Protocol: TCP, Port: 53}, []uint16{5354, 5354}},
			{Port{Name: "", Protocol: UDP, Port: 53}, []uint16{7, 7}},
			{Port{Name: "", Protocol: TCP, Port: 53}, nil},
			{Port{Name: "DNS", Protocol: UDP, Port: 53}, nil},
		} {
			var g gathering
			g.gather(family, &tt.port, from, thisNode)
			var got []uint16
			for _, c := range g.candidates {
				got = append(got, c.port)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s/%s: ports %v, want %v", tt.port.Name, tt.port.Protocol, got, tt.want)
			}
		}
	})
}

// TestResolve_EndpointsSorted: endpoints are sorted by address and port, regardless of the order of slices and their
// ports.
func TestResolve_EndpointsSorted(t *testing.T) {
	eachFamily(t, func(t *testing.T, family Family) {
		s := newSlice(t, family, "s1", "")
		for i := range 300 {
			bytes := address(family, 'a').AsSlice()
			bytes[len(bytes)-2], bytes[len(bytes)-1] = byte(i>>4), byte(7*i)
			addr, _ := netip.AddrFromSlice(bytes)
			s.Endpoints = append(s.Endpoints, SliceEndpoint{Addr: addr, Ready: true})
		}
		s.Ports = append(s.Ports, SlicePort{Name: "p80", Protocol: TCP, Port: 9})
		view := Resolve(testKey, newSpec(), []*Slice{s}, facts())
		if got := view.Ports[family][0].Cluster; len(got) != 600 || !slices.IsSortedFunc(got, Endpoint.Compare) {
			t.Errorf("%d endpoints, in this order: %v", len(got), got)
		}
	})
}
