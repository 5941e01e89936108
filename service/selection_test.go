package service

import (
	"net/netip"
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

func TestPolicyAndTermination(t *testing.T) {
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

func TestLocalPrefersReady(t *testing.T) {
	eachFamily(t, func(t *testing.T, family Family) {
		slice := newSlice(t, family, "s1", "a R; b S; c R; d S")
		for i := range slice.Endpoints {
			slice.Endpoints[i].NodeName = thisNode
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

func TestEndpointWithoutNodeIsNotLocal(t *testing.T) {
	eachFamily(t, func(t *testing.T, family Family) {
		slice := newSlice(t, family, "s1", "a R")
		slice.Endpoints[0].NodeName = ""
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

func TestReadyLocalCountsAddresses(t *testing.T) {
	eachFamily(t, func(t *testing.T, family Family) {
		spec := policySpec("Cluster", "Local")
		spec.Ports = append(spec.Ports, Port{Name: "p81", Protocol: TCP, Port: 81})
		two := newSlice(t, family, "s1", "n R; a R; b S; c P; d R")
		for i := range two.Endpoints {
			two.Endpoints[i].NodeName = thisNode
		}
		two.Endpoints[4].NodeName = "n2"
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

func TestServingIsForEstablishedFlows(t *testing.T) {
	tests := []struct {
		name      string
		protocol  Protocol
		endpoints string
		want      string
		resting   string
	}{
		{"all that serve", UDP, "a R; b S; c U; d X; n P", "a b c n", ""},
		{"hints never cut a flow", UDP, "a R -/{za}; b R -/{zb}", "a b", ""},
		{"nothing serves", UDP, "a X; b T; c X", "", "a c"},
		{"one serves", UDP, "a X; b U", "b", ""},
		{"TCP flows end by themselves", TCP, "a R", "", ""},
		{"nor do they wait", TCP, "a X", "", ""},
		{"SCTP likewise", SCTP, "a R", "", ""},
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
				if got := letters(view.Ports[family][0].Resting); got != tt.resting {
					t.Errorf("Resting = %q, want %q", got, tt.resting)
				}
			})
		})
	}
}

func TestEqualSetsShareMemory(t *testing.T) {
	spec := policySpec("Local", "Local")
	spec.Ports[0].Protocol = UDP
	slice := newSlice(t, IPv4, "s1", "a R; b R")
	slice.Ports[0].Protocol = UDP
	for i := range slice.Endpoints {
		slice.Endpoints[i].NodeName = thisNode
	}
	view := Resolve(testKey, spec, []*Slice{slice}, facts())
	port := &view.Ports[IPv4][0]
	for name, set := range map[string][]Endpoint{"Local": port.Local, "Serving": port.Serving} {
		if len(set) != 2 || &set[0] != &port.Cluster[0] {
			t.Errorf("%s = %v does not share the memory of Cluster = %v", name, set, port.Cluster)
		}
	}
}

func TestNodeInSourceRanges(t *testing.T) {
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
