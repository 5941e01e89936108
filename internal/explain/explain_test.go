// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
)

const here, elsewhere, elsewhere2 = "10.244.1.10", "10.244.2.20", "10.244.2.30"

// TestExplain_AllModes asks the same questions in all modes. Want is the summary, and a part of one of the reasons. The
// modes differ in how they treat a port that a ClusterIP lacks.
func TestExplain_AllModes(t *testing.T) {
	ranges := made("web", here).external(false)
	ranges.spec.SourceRanges[service.IPv4] = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/25")}
	denying, deaf := made("web", here).external(false), made("web").external(false)
	denying.spec.DenyRanges[service.IPv4] = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/25")}
	deaf.spec.NoEndpoints = service.NoEndpointsDrop
	young := made("young", here)
	young.spec.Created = time.Unix(2000, 0)
	allocated, squatter := made("young", elsewhere), made("old", here)
	allocated.spec.Created = young.spec.Created
	squatter.spec.ClusterIPs[service.IPv4] = netip.MustParseAddr("172.30.0.42")
	squatter.spec.ExternalIPs[service.IPv4] = []netip.Addr{netip.MustParseAddr("172.30.0.41")}
	renamed, unnamed := made("web", here), made("web", here)
	renamed.slice.Ports[0].Name, unnamed.spec.Ports[0].Name = "", ""
	unnamed.slice.Ports = append(unnamed.slice.Ports, service.SlicePort{Name: "dns", Protocol: service.UDP, Port: 53})
	both, deniedPort := made("web", here).external(false), made("web", here)
	both.spec.LoadBalancerVIPs[service.IPv6] = []netip.Addr{netip.MustParseAddr("2001:db8:50::5")}
	deniedPort.spec.Ports[0].NotOutside = true
	zone := made("web", here, elsewhere)
	for i := range zone.slice.Endpoints {
		zone.slice.Endpoints[i].Location = &service.Location{ForZones: []string{[]string{"zb", "za"}[i]}}
	}
	for _, c := range []struct {
		name, question, want, why string
		services                  []*serviceMade
	}{
		{"a pod to a ClusterIP", "10.244.1.5 -> 172.30.0.41:80",
			"delivered the client 10.244.1.10:8080 0.50, 10.244.2.20:8080 0.50", "the source is a local pod",
			[]*serviceMade{made("web", here, elsewhere)}},
		{"from outside to a ClusterIP", "203.0.113.9 -> 172.30.0.41:80", "delivered the node 10.244.1.10:8080 1.00",
			"the source is no local pod", []*serviceMade{made("web", here)}},
		{"the node itself", "192.168.0.2 -> 172.30.0.41:80", "delivered the node 10.244.1.10:8080 1.00", "no local pod",
			[]*serviceMade{made("web", here)}},
		{"an endpoint to itself", here + " -> 172.30.0.41:80", "delivered the node 10.244.1.10:8080 1.00",
			"the endpoint reaches itself", []*serviceMade{made("web", here)}},
		{"no endpoints", "10.244.1.5 -> 172.30.0.41:80", "refused", "no EndpointSlice lists one", []*serviceMade{made("web")}},
		{"a slice whose port has no name", "10.244.1.5 -> 172.30.0.41:80", "refused",
			"no EndpointSlice lists one for this port; EndpointSlice web-1 has (unnamed)/tcp, and the Service's port is http/tcp", []*serviceMade{renamed}},
		{"a Service port without a name", "10.244.1.5 -> 172.30.0.41:80", "refused",
			"EndpointSlice web-1 has dns/udp, http/tcp, and the Service's port is (unnamed)/tcp: names and protocols", []*serviceMade{unnamed}},
		{"an address that only Services list that are not watched", "10.244.1.5 -> 203.0.113.111:80", "untouched the client",
			"headless Services, Services with the label", nil},
		{"an address that the Service lists in a family without a ClusterIP", "fd00:10:244::1 -> [2001:db8:50::5]:80", "untouched the client",
			"2001:db8:50::5 is an address of ns/web, which is not served over IPv6: it has no ClusterIP of this family", []*serviceMade{both}},
		{"a node port in a family without a ClusterIP", "fd00:10:244::1 -> [fd00:192::2]:30080", "untouched the client",
			"30080/tcp is a node port of ns/web, which is not served over IPv6", []*serviceMade{both}},
		{"a denied port of a Service that does not list the address", here + " -> 203.0.113.7:80", "untouched the client",
			"no Service owns 203.0.113.7:80/tcp", []*serviceMade{deniedPort}},
		{"none ready", "10.244.1.5 -> 172.30.0.41:80", "refused", "1 known, 0 ready, 1 on this node",
			[]*serviceMade{made("web", here+" unready")}},
		{"hinted for another zone", "10.244.1.5 -> 172.30.0.41:80", "delivered the client 10.244.2.20:8080 1.00",
			"hinted for zone za", []*serviceMade{zone}},
		{"a node port", "203.0.113.9 -> 192.168.0.2:30080", "delivered the node 10.244.2.20:8080 1.00",
			"externalTrafficPolicy is Cluster", []*serviceMade{made("web", elsewhere).external(false)}},
		{"at another address", "203.0.113.9 -> 192.168.1.2:30080", "untouched the client", "does not answer at 192.168.1.2",
			[]*serviceMade{made("web", elsewhere).external(false)}},
		{"external policy Local", "203.0.113.9 -> 192.168.0.2:30080", "delivered the client 10.244.1.10:8080 1.00",
			"the client's address is kept: externalTrafficPolicy is Local", []*serviceMade{made("web", here, elsewhere).external(true)}},
		{"and no endpoint here", "203.0.113.9 -> 192.0.2.41:80", "dropped", "no usable endpoint runs on this node (1 known, 1 ready",
			[]*serviceMade{made("web", elsewhere).external(true)}},
		{"but pods may use all", "10.244.1.5 -> 192.0.2.41:80", "delivered the client 10.244.2.20:8080 1.00",
			"local pods may use all endpoints", []*serviceMade{made("web", elsewhere).external(true)}},
		{"inside of the source ranges", "203.0.113.9 -> 192.0.2.41:80", "delivered the node 10.244.1.10:8080 1.00",
			"inside of loadBalancerSourceRanges (203.0.113.0/25)", []*serviceMade{ranges}},
		{"outside of them", "203.0.113.129 -> 192.0.2.41:80", "dropped", "outside of loadBalancerSourceRanges", []*serviceMade{ranges}},
		{"denied", "203.0.113.9 -> 192.0.2.99:80", "dropped", "inside of the denied sources (203.0.113.0/25", []*serviceMade{denying}},
		{"denied at the node port", "203.0.113.9 -> 192.168.0.2:30080", "dropped", "inside of the denied sources", []*serviceMade{denying}},
		{"not denied at the ClusterIP", "203.0.113.9 -> 172.30.0.41:80", "delivered the node 10.244.1.10:8080 1.00", "", []*serviceMade{denying}},
		{"no endpoints, dropped", "203.0.113.9 -> 192.0.2.99:80", "dropped", "annotation sluice.dev/no-endpoints: drop", []*serviceMade{deaf}},
		{"which an external IP does not have", "203.0.113.129 -> 192.0.2.99:80", "delivered the node 10.244.1.10:8080 1.00", "", []*serviceMade{ranges}},
		{"the older Service has the address", "10.244.1.5 -> 172.30.0.41:80", "delivered the client 10.244.2.20:8080 1.00",
			"ns/young also requests this frontend; ns/old owns it", []*serviceMade{young, made("old", elsewhere)}},
		{"the older Service has the node port", "203.0.113.9 -> 192.168.0.2:30080", "delivered the node 10.244.2.20:8080 1.00",
			"ns/young also requests this frontend; ns/old owns it", []*serviceMade{young.external(false), made("old", elsewhere).external(false)}},
		{"the Service with the ClusterIP has the address", "10.244.1.5 -> 172.30.0.41:80", "delivered the client 10.244.2.20:8080 1.00",
			"ns/old also requests this frontend; ns/young owns it", []*serviceMade{allocated, squatter}},
		{"no Service", "10.244.1.5 -> 192.0.2.7:80", "untouched the client", "no Service owns 192.0.2.7:80/tcp", nil},
	} {
		for _, mode := range modes {
			if mode == IPVS && slices.ContainsFunc(c.services, func(s *serviceMade) bool { return s == denying || s == deaf }) {
				continue // it ignores the annotations
			}
			t.Run(c.name+"/"+mode, func(t *testing.T) {
				a := explained(t, newState(mode, c.services...), c.question)
				if got := a.summary(); got != c.want {
					t.Errorf("%s: %s, want %s\n%v", c.question, got, c.want, a.Outcomes)
				}
				if !strings.Contains(strings.Join(a.Reasons, "\n"), c.why) {
					t.Errorf("%s because %q, want %q among it", c.question, a.Reasons, c.why)
				}
			})
		}
	}
}

// TestExplain_LeftOutFrontends: the answer names a frontend that is left out because its Service is too large. The other
// frontends of the Service are served.
func TestExplain_LeftOutFrontends(t *testing.T) {
	for _, mode := range modes {
		s := newState(mode, made("web", here).external(false))
		s.Facts.Limit.Objects = 3 // the ClusterIP
		for _, to := range []string{"192.0.2.99:80", "192.168.0.2:30080"} {
			if a := explained(t, s, "203.0.113.9 -> "+to); !mentions(a, to+"/tcp is a frontend of ns/web, which is left out: the Service needs ") || !mentions(a, "actors.objectsMax") {
				t.Errorf("%s: %s is %s because %q", mode, to, a.summary(), a.Reasons)
			}
		}
		if a := explained(t, s, "10.244.1.5 -> 172.30.0.41:80"); a.summary() != "delivered the client 10.244.1.10:8080 1.00" {
			t.Errorf("%s: %s because %q", mode, a.summary(), a.Reasons)
		}
	}
}

// TestExplain_UnservedAddresses: if the source knows all Services, the answer names those that list an address which no
// node serves.
func TestExplain_UnservedAddresses(t *testing.T) {
	for text, want := range map[string]string{"203.0.113.111": "k/web is headless", "192.0.2.99": "k/api is headless", "203.0.113.112": "no Service owns 203.0.113.112:81/tcp"} {
		s := newState(NFTables, made("web", here).external(false))
		s.Unserved = func(at netip.Addr) []string {
			return map[string][]string{"203.0.113.111": {"k/web is headless"}, "192.0.2.99": {"k/api is headless"}}[at.String()]
		}
		a := explained(t, s, "10.244.1.5 -> "+text+":81")
		if !mentions(a, want) || mentions(a, "unknown here") {
			t.Errorf("%s because %q, want %q among it", text, a.Reasons, want)
		}
	}
}

// TestExplain_PodsWithoutDetection: without detection of local pods, a pod counts as a client from outside for the
// Local policy.
func TestExplain_PodsWithoutDetection(t *testing.T) {
	for _, mode := range modes {
		s := newState(mode, made("web", elsewhere).external(true))
		s.Facts.Detect = service.PerFamily[service.LocalDetector]{}
		if a := explained(t, s, "10.244.1.5 -> 192.0.2.41:80"); !mentions(a, "counts as a client from outside: detection of local pods is not configured") && mode != IPVS {
			t.Errorf("%s: %s because %q", mode, a.summary(), a.Reasons)
		}
	}
}

// TestExplain_ModesDiffer: nftables refuses or drops packets that no rule translates; iptables has no rule there. IPVS
// refuses packets to an address of its device, and cannot drop those without an endpoint.
func TestExplain_ModesDiffer(t *testing.T) {
	web, internal := made("web", here), made("web", elsewhere)
	internal.spec.InternalLocal = true
	for _, c := range []struct {
		of                                      *serviceMade
		question, nftables, iptables, ipvs, why string
	}{
		{web, "10.244.1.5 -> 172.30.0.41:81", "refused", "untouched the client", "refused", "which has no port 81/tcp but 80/tcp"},
		{web, "10.244.1.5 -> 172.30.9.9:80", "dropped", "untouched the client", "untouched the client",
			"in the range of ClusterIPs 172.30.0.0/16, and no Service owns it"},
		{internal, "10.244.1.5 -> 172.30.0.41:80", "dropped", "dropped", "refused", "internalTrafficPolicy is Local, and no usable endpoint"},
	} {
		for mode, want := range map[string]string{NFTables: c.nftables, IPTables: c.iptables, IPVS: c.ipvs} {
			a := explained(t, newState(mode, c.of), c.question)
			if got := a.summary(); got != want || !strings.Contains(strings.Join(a.Reasons, "\n"), c.why) {
				t.Errorf("%s, %s: %s because %q, want %s because %q", mode, c.question, got, a.Reasons, want, c.why)
			}
		}
	}
}

// TestExplain_Affinity: a client that the kernel remembers goes to one endpoint, and others go to all.
func TestExplain_Affinity(t *testing.T) {
	sticky := made("web", here, elsewhere, elsewhere2)
	sticky.spec.AffinitySeconds = 600
	const question = "10.244.1.5 -> 172.30.0.41:80"
	for _, mode := range []string{NFTables, IPTables} {
		s := newState(mode, sticky)
		if a := explained(t, s, question); len(a.Outcomes) != 3 || !mentions(a, "a client with an entry") {
			t.Errorf("%s, nothing known: %s because %q", mode, a.summary(), a.Reasons)
		}
		s.Memory = memory{}
		if a := explained(t, s, question); len(a.Outcomes) != 3 || !mentions(a, "no entry for this client yet") {
			t.Errorf("%s, nothing remembered: %s because %q", mode, a.summary(), a.Reasons)
		}
		s.Memory = memory{only: firstAsked(t, mode, sticky), endpoint: netip.MustParseAddr(elsewhere)}
		a := explained(t, s, question)
		if len(a.Outcomes) != 1 || !mentions(a, "the kernel contains an entry for this client") || math.Abs(a.Outcomes[0].Probability-1) > 1e-9 {
			t.Errorf("%s, remembered: %s because %q", mode, a.summary(), a.Reasons)
		}
	}
	s := newState(NFTables, sticky)
	s.Memory = memory{only: firstAsked(t, NFTables, sticky), endpoint: netip.MustParseAddr("10.244.9.9")}
	if a := explained(t, s, question); len(a.Outcomes) != 3 || !mentions(a, "no entry for this client yet") {
		t.Errorf("an endpoint that has gone: %s because %q", a.summary(), a.Reasons)
	}
}

func mentions(a *Answer, text string) bool {
	return strings.Contains(strings.Join(a.Reasons, "\n"), text)
}

// firstAsked returns the map of the Service, or the list of one endpoint.
func firstAsked(t *testing.T, mode string, s *serviceMade) string {
	t.Helper()
	var names []string
	state := newState(mode, s)
	state.Memory = memory{asked: &names}
	explained(t, state, "10.244.1.5 -> 172.30.0.41:80")
	if want := map[string]int{NFTables: 1, IPTables: 3}[mode]; len(names) != want {
		t.Fatalf("%s: asked for %v, want %d names", mode, names, want)
	}
	slices.Sort(names)
	return names[0]
}

// memory is a kernel that remembers clients in one map or list.
type memory struct {
	only     string
	endpoint netip.Addr
	asked    *[]string
}

func (m memory) InMap(_ service.Family, name string, _ netip.Addr) (nftrender.AffinityEntry, bool, error) {
	if m.asked != nil {
		*m.asked = append(*m.asked, name)
	}
	return nftrender.AffinityEntry{Endpoint: m.endpoint, Left: time.Minute}, name == m.only, nil
}

func (m memory) InList(f service.Family, list string, client netip.Addr) (time.Duration, bool, error) {
	what, known, err := m.InMap(f, list, client)
	return what.Left, known, err
}

// TestExplain_InvalidQuestion: an invalid question is an error.
func TestExplain_InvalidQuestion(t *testing.T) {
	four, six := netip.MustParseAddrPort("10.0.0.1:0"), netip.MustParseAddrPort("[fd00::1]:80")
	for _, q := range []Flow{{From: four, To: six}, {From: four}, {To: six}, {From: four, To: netip.MustParseAddrPort("10.0.0.2:0")}} {
		if a, err := Explain(newState(NFTables), q); err == nil {
			t.Errorf("%v: %v, want an error", q, a)
		}
	}
	unserved := newState(NFTables)
	unserved.Domain = func(service.Family) (dataplane.Renderer, dataplane.Layout) { return nil, nil }
	if _, err := Explain(unserved, Flow{From: four, To: netip.MustParseAddrPort("10.0.0.2:80")}); err == nil {
		t.Error("a family that is not served: must be an error")
	}
	if _, err := Explain(newState("ebpf"), Flow{From: four, To: netip.MustParseAddrPort("10.0.0.2:80")}); err == nil {
		t.Error("an unknown mode: must be an error")
	}
}

// TestExplain_LocalhostNodePorts: on localhost, the proxy forwards to the node port at the node's address or, if node
// ports answer at no address of the node, to the endpoints. In a family without a forwarder, no process answers.
func TestExplain_LocalhostNodePorts(t *testing.T) {
	const everyEndpoint = "delivered the node 10.244.1.10:8080 0.50, 10.244.2.20:8080 0.50"
	for name, c := range map[string]struct {
		forwards  service.PerFamily[bool]
		on        service.NodePortAddresses
		want, why string
	}{
		"by the node port": {service.PerFamily[bool]{service.IPv4: true}, service.NodePortAddresses{All: true}, everyEndpoint, "connects to 192.168.0.2:30080"},
		"directly":         {service.PerFamily[bool]{service.IPv4: true}, service.NodePortAddresses{Loopback: true}, everyEndpoint, "connects to the endpoint"},
		"in IPv6 only":     {service.PerFamily[bool]{service.IPv6: true}, service.NodePortAddresses{All: true}, "untouched the node", "does not answer at 127.0.0.1"},
	} {
		s := newState(NFTables, made("web", here, elsewhere).external(true))
		s.ForwardsLocalhost, s.Facts.NodePorts[service.IPv4] = c.forwards, c.on
		a := explained(t, s, "127.0.0.1 -> 127.0.0.1:30080")
		if got := a.summary(); got != c.want || !strings.Contains(a.Reasons[0], c.why) {
			t.Errorf("%s: got %q, want %q; the reasons are %q, want %q", name, got, c.want, a.Reasons, c.why)
		}
	}
}
