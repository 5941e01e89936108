// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/dataplane"
	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/dataplane/iptables/rules"
	ipvsrender "github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/internal/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/reduce"
	"github.com/sluice-proxy/sluice/test/nftmodel"
	"github.com/sluice-proxy/sluice/test/sourcetest"
)

// names are the texts of a Service that its author chooses.
type names struct{ namespace, name, port, scheduler, zone string }

// cluster fills a cache with one Service that has every kind of frontend, as an API server
// without validation would hand it out, and returns what the reduction says about it.
func cluster(n names) (*source.Cache, []service.Warning) {
	cache := source.NewCache(sourcetest.NewRecorder(), source.Options{})
	object := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: n.name, Annotations: map[string]string{
			"sluice.dev/ipvs-scheduler": n.scheduler, "note": n.zone,
		}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, ExternalIPs: []string{"192.0.2.1"},
			SessionAffinity: corev1.ServiceAffinityClientIP, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
			HealthCheckNodePort: 30000, LoadBalancerSourceRanges: []string{"203.0.113.0/25"},
			Ports: []corev1.ServicePort{
				{Name: n.port, Port: 80, NodePort: 30080}, {Name: "rejected", Port: 81, NodePort: 30081},
			},
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{
			Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.2"}}}},
	}
	spec, warnings := reduce.Policy{}.Service(object)
	if spec == nil {
		return cache, warnings
	}
	cache.SetSpec(spec)
	slice, more := reduce.Policy{}.EndpointSlice(&discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: n.namespace, Name: n.name + n.zone, Labels: map[string]string{discoveryv1.LabelServiceName: n.name}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &n.port, Port: new(int32(8080))}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.244.0.1"}, NodeName: new("n1"), Zone: &n.zone},
			{Addresses: []string{"10.244.1.1"}, NodeName: &n.zone},
		},
	})
	if slice != nil {
		cache.SetSlice(slice)
	}
	return cache, append(warnings, more...)
}

func nodeFacts() *service.NodeFacts {
	facts := &service.NodeFacts{Name: "n1"}
	for _, family := range service.Families {
		facts.NodePorts[family].All = true
	}
	facts.Detect[service.IPv4].CIDR = netip.MustParsePrefix("10.244.0.0/16")
	return facts
}

// FuzzNames: for any names of a Service, its ports, annotations and endpoints, the rules of every mode have the same
// form as for plain names, and are read back as written. Values that cannot be in a rule are rejected with a warning
// that names object and field.
func FuzzNames(f *testing.F) {
	f.Add("ns", "web", "http", "rr", "zone-a")
	f.Add("kube-system", strings.Repeat("w", 63), strings.Repeat("p", 63), "mh", strings.Repeat("z", 190))
	f.Add("ns", "web\" -j ACCEPT\n-A INPUT -j DROP #", "http", "rr; flush ruleset", "$(reboot)")
	f.Add("ns\\", "a'b", "p\" ; flush ruleset; \"", "</script><script>", "\x1b[2J")
	f.Add("n s", "{{.}}", "@frontends", "\x00", "ä\u202e\xff")
	f.Add("ns", "web", "", "", "")
	f.Fuzz(func(t *testing.T, namespace, name, port, scheduler, zone string) {
		n := names{namespace, name, port, scheduler, zone}
		cache, warnings := cluster(n)
		for _, w := range warnings {
			if w.Object == "" || w.Field == "" || w.Problem == "" || w.Effect == "" ||
				strings.ContainsFunc(w.Object+w.Problem, unicode.IsControl) {
				t.Errorf("warning %+q", w)
			}
		}
		keys := cache.Keys()
		switch {
		case len(keys) == 0 && len(warnings) == 0:
			t.Fatalf("%q is neither served nor rejected", n)
		case len(keys) == 0:
			return
		case len(cache.Snapshot(keys[0]).Spec.Ports) == 1:
			if port == "rejected" || len(warnings) > 0 {
				return // rejected with a reason
			}
			t.Fatalf("port %q was dropped without a warning", port)
		}
		if cache.Snapshot(keys[0]).Slices == nil {
			if len(warnings) == 0 {
				t.Fatalf("the slice of %q was rejected without a warning", n)
			}
			return
		}
		plain := plainForms()[port == ""]
		checkNFTables(t, n, cache, plain.nftables)
		checkIPTables(t, n, cache, plain.iptables)
		checkIPVS(t, n, cache)
	})
}

// forms are texts with plain names.
type forms struct{ nftables, iptables string }

// plainForms renders a Service with plain names once, by whether its port has none.
var plainForms = sync.OnceValue(func() map[bool]forms {
	named, _ := cluster(names{"ns", "web", "http", "", "z"})
	unnamed, _ := cluster(names{"ns", "web", "", "", "z"})
	all := map[bool]forms{}
	for key, cache := range map[bool]*source.Cache{false: named, true: unnamed} {
		_, nft, _ := forNFT(cache)
		_, ipt, _ := forIPTables(cache)
		all[key] = forms{nft, ipt}
	}
	return all
})

func forNFT(cache *source.Cache) ([]dataplane.Object, string, error) {
	renderer := nftrender.NewRenderer(service.IPv4, nftrender.Options{MasqueradeBit: 14})
	objects := render.Objects(renderer, nil, render.Views(cache, nodeFacts()), nodeFacts())
	text, err := nftrender.Text(service.IPv4, objects)
	return objects, text, err
}

func forIPTables(cache *source.Cache) ([]dataplane.Object, string, error) {
	renderer := iptrender.NewRenderer(service.IPv4, iptrender.Options{MasqueradeBit: 14, RandomFully: true})
	objects := render.Objects(renderer, iptrender.NewLayout(service.IPv4), render.Views(cache, nodeFacts()), nodeFacts())
	text, err := iptkernel.Text(objects)
	return objects, text, err
}

// checkNFTables compares the text for nft without names and comments, and reads back what a
// kernel gets.
func checkNFTables(t *testing.T, n names, cache *source.Cache, wanted string) {
	t.Helper()
	objects, text, err := forNFT(cache)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := skeleton(t, text), skeleton(t, wanted); !slices.Equal(got, want) {
		t.Errorf("the rules of %q have another form than those of plain names:\n%s", n, text)
	}
	kernel := nftmodel.NewKernel()
	writer := nftkernel.NewWriter(service.IPv4, nftkernel.WriterConfig{Open: kernel.Open})
	batch := &dataplane.Batch{}
	for i := range objects {
		batch.Changes = append(batch.Changes, dataplane.Change{ID: objects[i].ID, After: &objects[i]})
	}
	if receipt := writer.Write(t.Context(), batch); receipt.Outcome != dataplane.Landed {
		t.Fatalf("the kernel's answer to %q: %v", n, receipt)
	}
	read, err := writer.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	compareObjects(t, read, objects)
}

// skeleton is a text for nft with every comment and every hashed name replaced by a word, line
// by line and sorted. It fails if a comment could end early.
func skeleton(t *testing.T, text string) []string {
	t.Helper()
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		parts := strings.Split(line, `"`)
		if len(parts)%2 == 0 {
			t.Errorf("an open quotation: %q", line)
		}
		for j := range parts {
			if strings.ContainsFunc(parts[j], func(r rune) bool { return r != '\t' && !unicode.IsPrint(r) }) || strings.Contains(parts[j], `\`) {
				t.Errorf("unprintable: %q", line)
			}
			if j%2 == 1 {
				parts[j] = "C"
			}
		}
		words := strings.Split(strings.Join(parts, `"`), " ")
		for j, word := range words {
			// A chain or set of a service port: PREFIX-HASH-namespace/name/protocol/port.
			if before, _, named := strings.Cut(word, "/"); named && strings.Count(word, "/") == 3 {
				words[j] = before[:strings.IndexByte(before, '-')]
			}
			if strings.HasPrefix(word, "@remembered-") { // the one that the hash of a port chooses
				words[j] = "@remembered"
			}
		}
		lines[i] = strings.Join(words, " ")
	}
	slices.Sort(lines)
	return lines
}

// saved is a tool whose tables hold a text for iptables-restore.
type saved struct {
	iptkernel.Tool
	text string
}

func (saved) Announced() bool       { return true }
func (saved) OnStart(func(pid int)) {}

func (s saved) Save(_ context.Context, table iptrender.Table) ([]byte, error) {
	_, rest, found := strings.Cut(s.text, "*"+string(table)+"\n")
	if !found {
		return nil, nil
	}
	body, _, _ := strings.Cut(rest, "COMMIT\n")
	return []byte("*" + string(table) + "\n" + strings.ReplaceAll(body, "-I ", "# ") + "COMMIT\n"), nil
}

// checkIPTables compares the rules with those of plain names, argument by argument, and reads
// them back.
func checkIPTables(t *testing.T, n names, cache *source.Cache, wanted string) {
	t.Helper()
	objects, text, err := forIPTables(cache)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := arguments(t, text), arguments(t, wanted); !slices.Equal(got, want) {
		t.Errorf("the rules of %q have another form than those of plain names:\n%s", n, text)
	}
	read, err := iptkernel.NewWriter(service.IPv4, saved{text: text}, iptkernel.WriterConfig{}).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	objects = slices.DeleteFunc(objects, func(o dataplane.Object) bool { return strings.Contains(o.ID.Container, "/") })
	compareObjects(t, read, objects)
}

// arguments returns the number of arguments of each line, sorted, without those of hashed names
// and comments.
func arguments(t *testing.T, text string) []string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(text) {
		words := rules.Words(strings.TrimSuffix(line, "\n"))
		for i, word := range words {
			switch {
			case i > 0 && words[i-1] == "--comment":
				if len(word) > 255 || strings.ContainsFunc(word, unicode.IsControl) {
					t.Errorf("comment %q", word)
				}
				words[i] = "C"
			case strings.HasPrefix(word, "KUBE-S"), strings.HasPrefix(word, ":KUBE-S"),
				strings.HasPrefix(word, "KUBE-EXT-"), strings.HasPrefix(word, ":KUBE-EXT-"),
				strings.HasPrefix(word, "KUBE-FW-"), strings.HasPrefix(word, ":KUBE-FW-"):
				if len(strings.TrimPrefix(word, ":")) > 28 {
					t.Errorf("chain %q is too long for iptables", word)
				}
				words[i] = "H"
			}
		}
		lines = append(lines, strings.Join(words, " "))
	}
	slices.Sort(lines)
	return lines
}

// checkIPVS parses every object back and looks for names in them.
func checkIPVS(t *testing.T, n names, cache *source.Cache) {
	t.Helper()
	renderer := ipvsrender.NewRenderer(service.IPv4, ipvsrender.Options{MasqueradeBit: 14})
	marks := 0
	for _, o := range render.Objects(renderer, nil, render.Views(cache, nodeFacts()), nodeFacts()) {
		if server, err := ipvsrender.ParseServer(&o); err == nil {
			marks++
			if again := server.Object(); again.ID != o.ID || again.Body != o.Body {
				t.Errorf("%+v becomes %+v", o, again)
			}
		}
		for _, name := range []string{n.namespace, n.name, n.zone} {
			if len(name) > 12 && strings.Contains(o.ID.Name+o.Body, name) {
				t.Errorf("%q is in %+v", name, o)
			}
		}
	}
	if marks == 0 {
		t.Error("no virtual server was rendered")
	}
}

// compareObjects requires the same objects with the same bodies.
func compareObjects(t *testing.T, got, want []dataplane.Object) {
	t.Helper()
	describe := func(objects []dataplane.Object) (all []string) {
		for i := range objects {
			all = append(all, fmt.Sprintf("%s %q %q", objects[i].ID.Container, objects[i].ID.Name, objects[i].Body))
		}
		slices.Sort(all)
		return all
	}
	a, b := describe(got), describe(want)
	for _, line := range a {
		if _, found := slices.BinarySearch(b, line); !found {
			t.Errorf("read and not written: %s", line)
		}
	}
	if len(a) != len(b) {
		t.Errorf("%d objects read, %d written", len(a), len(b))
	}
}
