// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	ipvsrender "github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/internal/terminal"
	"github.com/sluice-proxy/sluice/service"
)

// TestIPVS asks questions that only IPVS mode answers in this way.
func TestIPVS(t *testing.T) {
	ranges := made("web", here).external(false)
	ranges.spec.SourceRanges[service.IPv4] = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/25")}
	withNode := made("web", here).external(false)
	withNode.spec.SourceRanges[service.IPv4] = []netip.Prefix{netip.MustParsePrefix("192.168.0.0/24")}
	itsOwn := made("web", here).external(false)
	itsOwn.spec.ExternalIPs[service.IPv4] = []netip.Addr{netip.MustParseAddr("192.168.1.2")}
	for _, c := range []struct {
		name, question, want, why string
		of                        *serviceMade
	}{
		{"local endpoints only, even for pods", "10.244.1.5 -> 192.0.2.41:80", "delivered the client 10.244.1.10:8080 1.00",
			"does not distinguish its clients", made("web", here, elsewhere).external(true)},
		{"the node without an endpoint of its own", "192.168.0.2 -> 192.0.2.41:80", "delivered the node 10.244.2.20:8080 1.00",
			"local pods may use all endpoints", made("web", elsewhere).external(true)},
		{"node port on loopback", "127.0.0.1 -> 127.0.0.1:30080", "untouched the node", "IPVS cannot serve node ports at loopback addresses",
			made("web", here).external(false)},
		{"node port at an address of the device", "203.0.113.9 -> 192.0.2.41:30080", "refused", "which has no port 30080/tcp",
			made("web", here).external(false)},
		{"the node outside of source ranges", "192.168.0.2 -> 192.0.2.41:80", "dropped", "192.168.0.2 is outside of loadBalancerSourceRanges", ranges},
		{"the node inside of them", "192.168.1.2 -> 192.0.2.41:80", "delivered the node 10.244.1.10:8080 1.00", "192.168.0.2 is inside", withNode},
		{"an external IP of the node itself", "203.0.113.9 -> 192.168.1.2:80", "delivered the node 10.244.1.10:8080 1.00", "", itsOwn},
		{"another port there", "203.0.113.9 -> 192.168.1.2:22", "untouched the client", "", itsOwn},
		{"an address of the device asks itself", "172.30.0.41 -> 172.30.0.41:80", "delivered the node 10.244.2.20:8080 1.00", "",
			made("web", elsewhere)},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := explained(t, newState(IPVS, c.of), c.question)
			if got := a.summary(); got != c.want || !mentions(a, c.why) {
				t.Errorf("%s: %s because %q, want %s because %q", c.question, got, a.Reasons, c.want, c.why)
			}
		})
	}
}

// TestIPVS_BoundProcess: a process that binds to an address of the node keeps it as its source; any other process has
// the Service's address.
func TestIPVS_BoundProcess(t *testing.T) {
	s := newState(IPVS, made("web", elsewhere))
	s.Facts.Detect = service.PerFamily[service.LocalDetector]{}
	for from, want := range map[string]bool{"192.168.0.2:0": true, "192.168.0.2:1234": false} {
		a, err := Explain(s, Flow{From: netip.MustParseAddrPort(from), To: netip.MustParseAddrPort("172.30.0.41:80")})
		if err != nil || len(a.Outcomes) != 1 || a.Outcomes[0].Masqueraded != want || (len(a.Assumed) == 1) != want {
			t.Errorf("%s: %+v, %v; want masqueraded %v", from, a, err, want)
		}
		if want && !mentions(a, "masqueraded: the source is this node, whose packets") {
			t.Errorf("%s because %q", from, a.Reasons)
		}
	}
}

// TestIPVS_Steps: the steps list each hook, with the entries of sets and the virtual server.
func TestIPVS_Steps(t *testing.T) {
	a := explained(t, newState(IPVS, made("web", elsewhere)), "203.0.113.9 -> 172.30.0.41:80")
	var got []string
	for _, s := range a.Outcomes[0].Steps {
		if !s.Base {
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", s.Hook, s.Table, s.Chain, s.Element)))
		}
	}
	want := []string{
		"prerouting nat KUBE-SERVICES 172.30.0.41,tcp:80", "prerouting nat KUBE-MARK-MASQ", "prerouting nat KUBE-SERVICES",
		"prerouting nat KUBE-SERVICES 172.30.0.41,tcp:80", "input filter KUBE-IPVS-FILTER 172.30.0.41,tcp:80",
		"input ipvs virtual server", "input ipvs real server", "postrouting nat KUBE-POSTROUTING", "postrouting nat KUBE-POSTROUTING",
	}
	if !slices.Equal(got, want) {
		t.Errorf("steps %q, want %q", got, want)
	}
}

// TestIPVS_Schedulers: for each scheduler, the right real servers can be chosen, with their probabilities. The second
// real server has weight 0.
func TestIPVS_Schedulers(t *testing.T) {
	const reals, draining = "\n10.0.0.1:80 1\n10.0.0.3:80 1", "\n10.0.0.1:80 1\n10.0.0.2:80 0\n10.0.0.3:80 1"
	for _, c := range []struct{ body, want string }{
		{"rr 0x0 0" + draining, "10.0.0.1:80 0.50, 10.0.0.3:80 0.50"},
		{"rr 0x1 600" + draining, "10.0.0.1:80 0.50, 10.0.0.3:80 0.50"},
		{"rr 0x0 0\n10.0.0.1:80 3\n10.0.0.3:80 1", "10.0.0.1:80 0.50, 10.0.0.3:80 0.50"},
		{"wrr 0x0 0\n10.0.0.1:80 3\n10.0.0.3:80 1", "10.0.0.1:80 0.75, 10.0.0.3:80 0.25"},
		{"rr 0x0 0", "refused 1.00"},
		{"sh 0x0 0\n10.0.0.2:80 0", "refused 1.00"},
		{"sh 0x0 0" + reals, "10.0.0.1:80 ?, 10.0.0.3:80 ?"},
		{"sh 0x0 0" + draining, "10.0.0.1:80 ?, 10.0.0.3:80 ?, refused ?"},
		{"sh 0x8 0" + draining, "10.0.0.1:80 ?, 10.0.0.3:80 ?"},
		{"mh 0x10 0" + draining, "10.0.0.1:80 ?, 10.0.0.3:80 ?"},
		{"lc 0x0 0\n10.0.0.1:80 1", "10.0.0.1:80 1.00"},
		{"ovf 0x0 0\n10.0.0.1:80 1", "10.0.0.1:80 ?, refused ?"},
		{"best 0x0 0" + reals, "error"},
		{"rr 0x4 0" + reals, "error"},
	} {
		frontend := service.Frontend{Addr: netip.MustParseAddr("172.30.0.41"), Port: 80}
		objects := []dataplane.Object{
			{ID: ipvsrender.AddressID(frontend.Addr)}, {ID: ipvsrender.ServerID(frontend), Body: c.body},
		}
		if got := endsOf(t, objects); got != c.want {
			t.Errorf("%q: %s, want %s", c.body, got, c.want)
		}
	}
}

// endsOf follows a packet from outside, and returns how it can end.
func endsOf(t *testing.T, objects []dataplane.Object) string {
	t.Helper()
	rules, err := newIPVSRules(objects, nil)
	if err != nil {
		t.Fatal(err)
	}
	ways, err := rules.ways(packet{Src: netip.MustParseAddrPort("10.9.9.9:1"), Dst: netip.MustParseAddrPort("172.30.0.41:80"), In: "eth0"})
	if err != nil {
		return "error"
	}
	var ends []string
	for _, w := range ways {
		end, share := w.To.String(), fmt.Sprintf("%.2f", w.Probability)
		if w.Verdict != Delivered {
			end = string(w.Verdict)
		}
		if w.How != "" {
			share = "?"
		}
		ends = append(ends, end+" "+share)
	}
	slices.Sort(ends)
	return strings.Join(ends, ", ")
}

// TestIPVS_OverflowMayRefuse: the scheduler ovf may refuse although there is an endpoint.
func TestIPVS_OverflowMayRefuse(t *testing.T) {
	s := newState(IPVS, made("web", elsewhere))
	s.Domain = func(f service.Family) (dataplane.Renderer, dataplane.Layout) {
		return ipvsrender.NewRenderer(f, ipvsrender.Options{MasqueradeBit: 14, Scheduler: "ovf"}), nil
	}
	var text terminal.Page
	explained(t, s, "10.244.1.5 -> 172.30.0.41:80").Print(&text)
	for _, want := range []string{
		"delivered to 10.244.2.20:8080, which sees the client's address; or refused\n", "there are no probabilities: the scheduler ovf chooses",
		"10.244.2.20:8080  -            n2    ready    client\n", "172.30.0.41:80    -            -     refused  -\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%s\nwant %q in it", text.String(), want)
		}
	}
}

// TestIPVS_UnknownProbabilities: an answer has no probabilities if the scheduler's state decides.
func TestIPVS_UnknownProbabilities(t *testing.T) {
	for scheduler, c := range map[string]struct {
		want float64
		why  string
	}{
		"": {0.5, "the client's address is kept"}, "lc": {0, "the scheduler lc chooses the endpoint with the fewest connections"},
		"sh": {0, "a hash of the client's address; while an endpoint drains"}, "mh": {0, "a hash of the client's address and port"},
	} {
		s := newState(IPVS, made("web", here, elsewhere))
		s.Domain = func(f service.Family) (dataplane.Renderer, dataplane.Layout) {
			return ipvsrender.NewRenderer(f, ipvsrender.Options{MasqueradeBit: 14, Scheduler: scheduler}), nil
		}
		a := explained(t, s, "10.244.1.5 -> 172.30.0.41:80")
		if a.Outcomes[0].Probability != c.want || a.Scheduler != scheduler || !mentions(a, c.why) {
			t.Errorf("scheduler %q: %+v", scheduler, a)
		}
	}
}

// TestIPVSRules_RenderedSets: every rule in the golden files of the renderer is understood, with its sets.
func TestIPVSRules_RenderedSets(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "dataplane", "ipvs", "render", "testdata", "scaffold*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	sets := make(map[string]ipSet)
	for _, family := range service.Families {
		for _, s := range ipvsrender.Sets(family) {
			sets[s.Name] = ipSet{kind: s.Type}
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		rules, about := 0, ""
		for line := range strings.Lines(string(text)) {
			rule, isBody := strings.CutPrefix(strings.TrimRight(line, "\n"), "  ")
			if !isBody {
				about = line
			} else if !strings.HasPrefix(about, "set |") {
				rules++
				if err := understood(rule, sets); err != nil {
					t.Errorf("%s: %s: %v", filepath.Base(file), rule, err)
				}
			}
		}
		if rules < 50 {
			t.Errorf("%s: %d rules, want 50 or more", file, rules)
		}
	}
}

// TestIPVSRules_UnknownObjects: an object that is not understood is an error, never a guess.
func TestIPVSRules_UnknownObjects(t *testing.T) {
	set := dataplane.Object{ID: ipvsrender.SetID("KUBE-A"), Body: "hash:ip,port inet"}
	for name, o := range map[string]dataplane.Object{
		"no such set":      {ID: dataplane.ID{Container: "nat", Name: "PREROUTING"}, Body: "-m set --match-set KUBE-B dst,dst -j ACCEPT"},
		"too few parts":    {ID: dataplane.ID{Container: "nat", Name: "PREROUTING"}, Body: "-m set --match-set KUBE-A dst -j ACCEPT"},
		"an unknown part":  {ID: dataplane.ID{Container: "nat", Name: "PREROUTING"}, Body: "-m set --match-set KUBE-A dst,out -j ACCEPT"},
		"entry of nothing": {ID: dataplane.ID{Container: "set/KUBE-B", Name: "10.0.0.1,tcp:80"}},
		"a bad entry":      {ID: dataplane.ID{Container: "set/KUBE-A", Name: "10.0.0.1"}},
		"a bad server":     {ID: dataplane.ID{Container: ipvsrender.ContainerServer, Name: "tcp 172.30.0.41:80"}, Body: "rr"},
		"a bad address":    {ID: dataplane.ID{Container: ipvsrender.ContainerAddress, Name: "x"}},
	} {
		rules, err := newIPVSRules([]dataplane.Object{set, o}, nil)
		if err == nil {
			_, err = rules.ways(packet{Src: netip.MustParseAddrPort("10.9.9.9:1"), Dst: netip.MustParseAddrPort("172.30.0.41:80"), In: "eth0"})
		}
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
