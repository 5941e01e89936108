// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/sluice-proxy/sluice/internal/document"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/reduce"
)

const goodService = `apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  clusterIP: 10.96.0.1
  ports:
    - port: 80
`

const goodSlice = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  labels:
    kubernetes.io/service-name: web
addressType: IPv4
ports:
  - port: 8080
endpoints:
  - addresses: [10.0.0.1]
`

// parsed fails the test unless text is accepted.
func parsed(t *testing.T, text string) []object {
	t.Helper()
	objects, problems := parse("f.yaml", []byte(text), reduce.Policy{})
	if len(problems) > 0 {
		t.Fatalf("rejected: %s", problems[0])
	}
	return objects
}

func ids(objects []object) string {
	var all []string
	for _, object := range objects {
		all = append(all, fmt.Sprintf("%s@%d", object.id, object.line))
	}
	return strings.Join(all, ", ")
}

func TestParse_Forms(t *testing.T) {
	item := func(text string) string {
		return "  - " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n"
	}
	tests := map[string]struct{ text, want string }{
		"one document":     {goodService, "Service default/web@1"},
		"several":          {goodService + "---\n" + goodSlice, "Service default/web@1, EndpointSlice default/web-1@10"},
		"comments between": {"# nothing\n---\n" + goodService + "---\n# nothing\n---\n", "Service default/web@3"},
		"empty":            {"", ""},
		"comment only":     {"# nothing yet\n", ""},
		"list": {"apiVersion: v1\nkind: List\nmetadata: {}\nitems:\n" + item(goodService) + item(goodSlice),
			"Service default/web@5, EndpointSlice default/web-1@13"},
		"empty list": {"apiVersion: v1\nkind: List\nitems: []\n", ""},
		"no items":   {"apiVersion: v1\nkind: List\n", ""},
		"JSON with tabs, twice": {`{
	"apiVersion": "v1", "kind": "Service",
	"metadata": {"name": "a"}, "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]}
}
---
{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
`, "Service default/a@1, Node n@6"},
		"anchors":    {strings.Replace(goodService, "name: web", "name: &n web\n  labels: {app: *n}", 1), "Service default/web@1"},
		"merge keys": {edit(goodService, "  clusterIP:", "  <<: [{type: ExternalName}, {type: ClusterIP}]\n  type: ClusterIP\n  clusterIP:"), "Service default/web@1"},
		"CRLF":       {strings.ReplaceAll(goodService, "\n", "\r\n"), "Service default/web@1"},
		"words that YAML 1.1 takes for booleans": {
			strings.Replace(goodService, "name: web", "name: web\n  labels: {on: no}", 1), "Service default/web@1"},
		"what kubectl prints": {strings.Replace(goodService, "name: web",
			"name: web\n  creationTimestamp: 2024-05-01T10:00:00Z\n  resourceVersion: \"1\"\n  uid: x\n  managedFields: []", 1) +
			"status:\n  loadBalancer: {}\n", "Service default/web@1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := ids(parsed(t, test.text)); got != test.want {
				t.Errorf("objects are %q, want %q", got, test.want)
			}
		})
	}
}

func TestParse_FillsDefaults(t *testing.T) {
	spec := parsed(t, goodService+"  sessionAffinity: ClientIP\n")[0].spec
	if spec.AffinitySeconds != 10800 {
		t.Errorf("affinity lasts %d s, want the API's default of 10800", spec.AffinitySeconds)
	}
	if got := spec.ClusterIPs[0].String(); got != "10.96.0.1" {
		t.Errorf("IPv4 ClusterIP is %s, want 10.96.0.1", got)
	}
	dual := parsed(t, strings.Replace(goodService, "clusterIP: 10.96.0.1", "clusterIPs: [fd00::1, 10.96.0.1]", 1))[0].spec
	if dual.ClusterIPs[0].String() != "10.96.0.1" || dual.ClusterIPs[1].String() != "fd00::1" {
		t.Errorf("ClusterIPs are %v, want one of each family", dual.ClusterIPs)
	}
	slice := parsed(t, goodSlice)[0].slice
	if len(slice.Ports) != 1 || slice.Ports[0].Name != "" || slice.Ports[0].Protocol.String() != "tcp" {
		t.Errorf("slice ports are %+v, want one, nameless, of TCP", slice.Ports)
	}
	node := parsed(t, "apiVersion: v1\nkind: Node\nmetadata: {name: n}\nspec: {podCIDR: 10.1.0.0/24}\n")[0].node
	if got := node.PodCIDRs[0].String(); got != "10.1.0.0/24" {
		t.Errorf("pod range is %s, want 10.1.0.0/24", got)
	}
}

// TestParse_OmitsUnproxiedServices: headless and ExternalName Services have no spec.
func TestParse_OmitsUnproxiedServices(t *testing.T) {
	for name, text := range map[string]string{
		"headless":     strings.Replace(goodService, "10.96.0.1", "None", 1),
		"ExternalName": "apiVersion: v1\nkind: Service\nmetadata: {name: e}\nspec: {type: ExternalName, externalName: example.org}\n",
	} {
		if got := parsed(t, text)[0].spec; got != nil {
			t.Errorf("%s: spec is %+v, want none", name, got)
		}
	}
}

// TestParse_AcceptsHarmlessMistakes: parse accepts some objects that an API server would reject, if they harm no rule.
func TestParse_AcceptsHarmlessMistakes(t *testing.T) {
	for name, text := range map[string]string{
		"form of a name":        edit(goodService, "name: web", "name: Web_1"),
		"form of a port's name": edit(goodService, "- port: 80", "- {name: A, port: 80}"),
		"nameless among two":    edit(goodService, "- port: 80", "- port: 80\n    - {name: b, port: 81}"),
		"mapped ClusterIP":      edit(goodService, "10.96.0.1", "\"::ffff:10.96.0.1\""),
		"no external name":      edit(goodService, "clusterIP: 10.96.0.1", "type: ExternalName"),
		"node with a namespace": "apiVersion: v1\nkind: Node\nmetadata: {name: n, namespace: x}\n",
	} {
		t.Run(name, func(t *testing.T) { parsed(t, text) })
	}
}

// edit returns a text with one part replaced; it panics if the part is not there,
// so that a case cannot pass by accident.
func edit(text, old, new string) string {
	if !strings.Contains(text, old) {
		panic("no " + old)
	}
	return strings.Replace(text, old, new, 1)
}

func TestParse_Rejects(t *testing.T) {
	service := func(old, new string) string { return edit(goodService, old, new) }
	slice := func(old, new string) string { return edit(goodSlice, old, new) }
	nodePort := service("clusterIP:", "type: NodePort\n  clusterIP:")
	balancer := service("clusterIP:", "type: LoadBalancer\n  clusterIP:")
	tests := []struct{ name, text, want string }{
		{"YAML syntax that the parser finds", "a: b\nc: [1,\nd: 2\n", "f.yaml:2: not valid YAML: did not find expected ',' or ']'"},
		{"YAML syntax", "a: b\n c: [", "f.yaml:2: not valid YAML: mapping values are not allowed in this context"},
		{"JSON syntax", "{\n\"a\": 1,\n\"b\"]}", "f.yaml:3: not valid YAML: did not find expected ',' or '}'"},
		{"JSON cut off", "{\n\"a\": [1,\n2", "f.yaml:2: not valid YAML: did not find expected ',' or ']'"},
		{"not an object", "- a\n", "f.yaml:1: must be an object with apiVersion and kind"},
		{"no kind", "apiVersion: v1\n", "f.yaml:1: kind: apiVersion and kind are required"},
		{"other kind", "apiVersion: apps/v1\nkind: Deployment\n", "f.yaml:2: kind: apps/v1 Deployment is not understood"},
		{"old version", slice("io/v1", "io/v1beta1"), "f.yaml:2: kind: discovery.k8s.io/v1beta1 EndpointSlice is not understood"},
		{"list with a stranger", "apiVersion: v1\nkind: List\nitem:\n- a\n", "f.yaml:3: List: item: unknown field"},
		{"list of nothing", "apiVersion: v1\nkind: List\nitems: 3\n", "f.yaml:3: List: items: must be a list"},
		{"item is text", "apiVersion: v1\nkind: List\nitems:\n- a\n", "f.yaml:4: must be an object"},
		{"unknown field", service("port: 80", "port: 80\n      prot: UDP"), "f.yaml:9: Service default/web: spec.ports[0].prot: unknown field"},
		{"wrong case", service("clusterIP:", "clusterIp:"), "f.yaml:6: Service default/web: spec.clusterIp: unknown field"},
		{"duplicate key", service("  ports:", "  clusterIP: 10.96.0.2\n  ports:"), "f.yaml:7: Service default/web: spec.clusterIP: already set on line 6"},
		{"duplicate JSON key", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"a",` + "\n" + `"name":"b"}, "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]}}`, "f.yaml:2: Service default/b: metadata.name: already set on line 1"},
		{"merge key", service("  clusterIP:", "  <<: 5\n  clusterIP:"), "f.yaml:6: Service default/web: spec: a merge key (<<) needs fields with values"},
		{"text for number", service("port: 80", "port: http"), "f.yaml:8: Service default/web: spec.ports[0].port: \"http\": must be a whole number (32 bits)"},
		{"huge number", service("port: 80", "port: 99999999999"), "f.yaml:8: Service default/web: spec.ports[0].port: 99999999999: must be a whole number (32 bits)"},
		{"map for list", service("    - port: 80", "    port: 80"), "f.yaml:7: Service default/web: spec.ports: {\"port\":80}: must be a list"},
		{"second is wrong", service("- port: 80", "- {name: a, port: 80}\n    - name: b\n      port: \"81\""), "f.yaml:10: Service default/web: spec.ports[1].port: \"81\": must be a whole number"},
		{"bad time", service("name: web", "name: web\n  creationTimestamp: now"), "f.yaml:5: Service default/web: metadata.creationTimestamp: \"now\": parsing time"},
		{"same object twice", goodService + "---\n" + goodService, "f.yaml:10: Service default/web: metadata.name: is already defined on line 1"},

		{"no name", service("name: web", "labels: {}"), "f.yaml:3: Service: metadata: namespace and name are required"},
		{"bad name", service("name: web", "name: web 1"), "f.yaml:4: Service default/web 1: metadata.name: \"web 1\" is not a name"},
		{"bad namespace", service("name: web", "name: web\n  namespace: a/b"), "f.yaml:5: Service a/b/web: metadata.namespace: \"a/b\" is not a name"},
		{"bad type", service("clusterIP:", "type: Cluster\n  clusterIP:"), "f.yaml:6: Service default/web: spec.type: \"Cluster\" must be one of ClusterIP, NodePort"},
		{"no ClusterIP", service("  clusterIP: 10.96.0.1\n", ""), "f.yaml:5: Service default/web: spec.clusterIP: is required: no API server allocates one"},
		{"bad ClusterIP", service("10.96.0.1", "10.96.0.300"), "f.yaml:6: Service default/web: spec.clusterIP: \"10.96.0.300\" is not an IP address"},
		{"leading zero", service("10.96.0.1", "010.96.0.1"), "f.yaml:6: Service default/web: spec.clusterIP: \"010.96.0.1\" is not an IP address"},
		{"zone", service("10.96.0.1", "fd00::1%eth0"), "spec.clusterIP: \"fd00::1%eth0\" must not have a zone"},
		{"leading zero", service("clusterIP:", "externalIPs: [010.0.0.1]\n  clusterIP:"), "spec.externalIPs[0]: \"010.0.0.1\" is not an IP address"},
		{"loopback", service("10.96.0.1", "127.0.0.1"), "127.0.0.1 must not be a loopback address"},
		{"unspecified", service("10.96.0.1", "0.0.0.0"), "0.0.0.0 must not be the unspecified address"},
		{"multicast", service("10.96.0.1", "224.0.0.1"), "224.0.0.1 must not be a multicast address"},
		{"link-local", service("10.96.0.1", "169.254.0.1"), "169.254.0.1 must not be a link-local address"},
		{"ClusterIPs differ", service("  ports:", "  clusterIPs: [10.96.0.2]\n  ports:"), "f.yaml:7: Service default/web: spec.clusterIPs[0]: \"10.96.0.2\" must equal spec.clusterIP"},
		{"one family twice", service("  ports:", "  clusterIPs: [10.96.0.1, 10.96.0.2]\n  ports:"), "spec.clusterIPs[1]: at most one address of each family"},
		{"three ClusterIPs", service("  ports:", "  clusterIPs: [10.96.0.1, fd00::1, fd00::2]\n  ports:"), "spec.clusterIPs[2]: at most one"},
		{"family mismatch", service("  ports:", "  ipFamilies: [IPv6]\n  ports:"), "f.yaml:5: Service default/web: spec.clusterIPs[0]: 10.96.0.1 is not an IPv6 address, as spec.ipFamilies requires"},
		{"families missing", service("  ports:", "  ipFamilies: [IPv4, IPv6]\n  ports:"), "spec.ipFamilies: contains 2 entries for 1 ClusterIPs"},
		{"headless node port", edit(nodePort, "10.96.0.1", "None"), "spec.clusterIP: must not be None for type NodePort"},
		{"no ports", service("  ports:\n    - port: 80\n", ""), "spec.ports: at least one port is required"},
		{"port 0", service("port: 80", "port: 0"), "f.yaml:8: Service default/web: spec.ports[0].port: 0 is not a port number (1 to 65535)"},
		{"port too large", service("port: 80", "port: 70000"), "spec.ports[0].port: 70000 is not a port number (1 to 65535)"},
		{"bad protocol", service("port: 80", "port: 80\n      protocol: tcp"), "f.yaml:9: Service default/web: spec.ports[0].protocol: \"tcp\" is not one of TCP, UDP, SCTP"},
		{"nameless twice", service("- port: 80", "- port: 80\n    - port: 81"), "spec.ports[1]: name \"\" and protocol tcp occur before"},
		{"name twice", service("- port: 80", "- {name: b, port: 80}\n    - {name: b, port: 81}"), "f.yaml:9: Service default/web: spec.ports[1]: name \"b\" and protocol tcp occur before"},
		{"port twice", service("- port: 80", "- {name: a, port: 80}\n    - {name: b, port: 80}"), "spec.ports[1].port: duplicates spec.ports[0].port"},
		{"bad port name", service("- port: 80", "- {name: a b, port: 80}"), "spec.ports[0].name: \"a b\""},
		{"no node port", nodePort, "f.yaml:9: Service default/web: spec.ports[0].nodePort: is required for type NodePort"},
		{"node port of a ClusterIP", service("port: 80", "port: 80\n      nodePort: 30080"), "spec.ports[0].nodePort: must not be set for type ClusterIP"},
		{"node port too large", edit(nodePort, "port: 80", "port: 80\n      nodePort: 70000"), "spec.ports[0].nodePort: 70000 is not a port number"},
		{"bad affinity", service("  ports:", "  sessionAffinity: Client\n  ports:"), "spec.sessionAffinity: \"Client\" must be one of None, ClientIP"},
		{"affinity too long", service("  ports:", "  sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 90000}}\n  ports:"), "f.yaml:8: Service default/web: spec.sessionAffinityConfig.clientIP.timeoutSeconds: 90000 is too long: at most 86400"},
		{"bad internal policy", service("  ports:", "  internalTrafficPolicy: local\n  ports:"), "spec.internalTrafficPolicy: \"local\" must be one of Cluster, Local"},
		{"bad external policy", edit(balancer, "  ports:", "  externalTrafficPolicy: local\n  ports:"), "spec.externalTrafficPolicy: \"local\" must be one of"},
		{"health port too large", edit(balancer, "  ports:", "  externalTrafficPolicy: Local\n  healthCheckNodePort: 70000\n  ports:"), "spec.healthCheckNodePort: 70000 is not a port number"},
		{"bad external IP", service("  ports:", "  externalIPs: [192.0.2.1, x]\n  ports:"), "f.yaml:7: Service default/web: spec.externalIPs[1]: \"x\" is not an IP address"},
		{"bad source range", edit(balancer, "  ports:", "  loadBalancerSourceRanges: [10.0.0.0]\n  ports:"), "spec.loadBalancerSourceRanges[0]: \"10.0.0.0\" is not a CIDR"},
		{"bad ingress", balancer + "status: {loadBalancer: {ingress: [{ip: x}]}}\n", "f.yaml:10: Service default/web: status.loadBalancer.ingress[0].ip: \"x\" is not"},
		{"bad mode", balancer + "status: {loadBalancer: {ingress: [{ip: 192.0.2.1, ipMode: vip}]}}\n", "ingress[0].ipMode: \"vip\" is not one of VIP, Proxy"},

		{"no owner", slice("kubernetes.io/service-name: web", "app: web"), "f.yaml:5: EndpointSlice default/web-1: metadata.labels[kubernetes.io/service-name]: is required"},
		{"bad address type", slice("IPv4", "ipv4"), "f.yaml:7: EndpointSlice default/web-1: addressType: \"ipv4\" must be one of"},
		{"wrong family", slice("10.0.0.1", "\"fd00::1\""), "f.yaml:11: EndpointSlice default/web-1: endpoints[0].addresses[0]: fd00::1 is not an IPv4 address, as addressType requires"},
		{"another leading zero", slice("[10.0.0.1]", "[10.0.0.1, 010.0.0.2]"), "endpoints[0].addresses[1]: \"010.0.0.2\" is not an IP address"},
		{"bad address", slice("10.0.0.1", "host"), "endpoints[0].addresses[0]: \"host\" is not an IP address"},
		{"no address", slice("[10.0.0.1]", "[]"), "endpoints[0].addresses: at least one address is required"},
		{"slice port 0", slice("8080", "0"), "f.yaml:9: EndpointSlice default/web-1: ports[0].port: 0 is not a port number"},
		{"no slice port", slice("port: 8080", "name: a"), "ports[0].port: missing"},
		{"bad slice port name", slice("port: 8080", "{port: 1, name: a b}"), "ports[0].name: \"a b\""},
		{"bad slice protocol", slice("port: 8080", "{port: 1, protocol: udp}"), "ports[0].protocol: \"udp\" is not one of"},
		{"slice port name twice", slice("- port: 8080", "- port: 1\n  - port: 2"), "ports[1].name: duplicates ports[0].name"},

		{"node in two namespaces", "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: n, namespace: x}\n",
			"f.yaml:5: Node n: metadata.name: is already defined on line 1"},
		{"node without name", "apiVersion: v1\nkind: Node\nmetadata:\n  labels: {}\n", "f.yaml:3: Node: metadata.name: is required"},
		{"bad node address", "apiVersion: v1\nkind: Node\nmetadata: {name: n}\nstatus:\n  addresses:\n  - type: InternalIP\n    address: x\n", "f.yaml:7: Node n: status.addresses[0].address: \"x\""},
		{"bad pod range", "apiVersion: v1\nkind: Node\nmetadata: {name: n}\nspec: {podCIDRs: [x]}\n", "spec.podCIDRs[0]: \"x\" is not a CIDR"},
		{"bad range", "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: n}\nspec: {cidrs: [x]}\n", "spec.cidrs[0]: \"x\" is not a CIDR"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			objects, problems := parse("f.yaml", []byte(test.text), reduce.Policy{})
			if len(problems) == 0 {
				t.Fatalf("accepted: %s", ids(objects))
			}
			if len(objects) > 0 {
				t.Errorf("%d objects of a bad file were given", len(objects))
			}
			if got := problems[0].String(); !strings.Contains(got, test.want) {
				t.Errorf("problem is\n%s, want\n%s", got, test.want)
			}
		})
	}
}

// TestParse_BoundsAliases: parse rejects a short text whose aliases expand without end.
func TestParse_BoundsAliases(t *testing.T) {
	bomb := "apiVersion: v1\nkind: Service\nmetadata:\n  name: b\n  x0: &x0 [aaaaaaaaaa]\n"
	for i := 1; i < 12; i++ {
		bomb += fmt.Sprintf("  x%d: &x%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*x%d, ", i-1), 10), ", "))
	}
	for text, want := range map[string]string{
		bomb: "excessive aliasing",
		"apiVersion: v1\nkind: Service\nmetadata: &m\n  name: b\n  labels: *m\n": "contains itself",
	} {
		_, problems := parse("f.yaml", []byte(text), reduce.Policy{})
		if len(problems) != 1 || !strings.Contains(problems[0].Message, want) {
			t.Errorf("problems are %v, want one with %q", problems, want)
		}
	}
}

// FuzzParse: for any text, parse either accepts the file as a whole or rejects it with problems that name it, and
// reading it again gives the same result.
func FuzzParse(f *testing.F) {
	f.Add(goodService + "---\n" + goodSlice)
	f.Add("apiVersion: v1\nkind: List\nitems: [&a {apiVersion: v1, kind: Node, metadata: {name: n}}, *a]\n")
	f.Add("{\"apiVersion\": \"v1\", \"kind\": \"Service\", \"metadata\": {}}")
	f.Add("a: &a [*a]\nkind: *a\n? [x]\n: y\n")
	f.Add("{\"apiVersion\": \"v1\", \"kind\": \"Service\", \"metadata\": {\"name\": \"a\\n\\u001b[2J\"}, \"\\r\": 1}")
	f.Fuzz(func(t *testing.T, text string) {
		objects, problems := parse("f.yaml", []byte(text), reduce.Policy{})
		if len(objects) > 0 && len(problems) > 0 {
			t.Fatalf("%d objects in spite of %s", len(objects), problems[0])
		}
		for _, problem := range problems {
			if problem.File != "f.yaml" || problem.Message == "" || problem.Line < 0 {
				t.Fatalf("unusable problem %+v", problem)
			}
			if text := problem.String(); len(text) > 3*partMax+100 || strings.ContainsFunc(text, unicode.IsControl) {
				t.Fatalf("a problem for one line: %+q", text)
			}
		}
		again, same := parse("f.yaml", []byte(text), reduce.Policy{})
		if ids(again) != ids(objects) || len(same) != len(problems) {
			t.Fatal("reading twice gives two results")
		}
	})
}

// folder writes files, given as name and text in turn.
func folder(t *testing.T, namesAndTexts ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(namesAndTexts); i += 2 {
		if err := os.WriteFile(filepath.Join(dir, namesAndTexts[i]), []byte(namesAndTexts[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestLoad_ReturnsEverything: Load returns a primed cache with all objects of the directory.
func TestLoad_ReturnsEverything(t *testing.T) {
	dir := folder(t,
		"slices.yaml", sliceManifest("a", "a-1", "10.0.0.1")+"---\n"+sliceManifest("a", "a-2", "10.0.0.2"),
		"a.yaml", manifest("a", 80),
		"node.yml", "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: other}\n",
		"ranges.json", `{"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "k"}, "spec": {"cidrs": ["10.96.0.0/16"]}}`,
		"README.md", "not a manifest")
	var warned []service.Warning
	cache, err := Load(dir, "n", source.Options{Warn: func(w service.Warning) { warned = append(warned, w) }})
	if err != nil {
		t.Fatal(err)
	}
	a := cache.Snapshot(service.Key{Namespace: "default", Name: "a"})
	if len(cache.Keys()) != 1 || a.Spec == nil || len(a.Slices) != 2 {
		t.Errorf("Services %v, a is %+v", cache.Keys(), a)
	}
	if cache.Node() == nil || cache.Node().Name != "n" || len(cache.ServiceCIDRs()) != 1 || !cache.Stats().Primed || warned != nil {
		t.Errorf("node %+v, ranges %v, %+v, warnings %v", cache.Node(), cache.ServiceCIDRs(), cache.Stats(), warned)
	}
}

// TestLoad_NamesEveryMistake: the error of Load lists every invalid or duplicate object of every file.
func TestLoad_NamesEveryMistake(t *testing.T) {
	dir := folder(t,
		"a.yaml", manifest("a", 80),
		"b.yaml", manifest("b", 0)+"---\n"+manifest("c", 70000)+"---\n"+manifest("a", 80),
		"c.yaml", manifest("a", 80),
		"d.yaml", "kind: [")
	cache, err := Load(dir, "n", source.Options{})
	rejected, ok := errors.AsType[*RejectedError](err)
	if !ok || cache == nil || len(cache.Keys()) != 1 || len(rejected.Problems) != 4 {
		t.Fatalf("%v, %v", cache, err)
	}
	want := "manifests rejected:\n" +
		dir + "/b.yaml:6: Service default/b: spec.ports[0].port: 0 is not a port number (1 to 65535)\n" +
		dir + "/b.yaml:13: Service default/c: spec.ports[0].port: 70000 is not a port number (1 to 65535)\n" +
		dir + "/c.yaml:1: Service default/a: metadata.name: is already defined in " + dir + "/a.yaml:1\n" +
		dir + "/d.yaml:2: not valid YAML: did not find expected node content"
	if err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// TestLoad_NeedsDirectory: Load returns an error if the directory does not exist.
func TestLoad_NeedsDirectory(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "nowhere"), "n", source.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestParse_FindsEveryMistakeAtOnce: parse reports all errors of a file together. A value of the wrong type does not
// hide unknown fields or invalid values, and causes no errors about its zero value.
func TestParse_FindsEveryMistakeAtOnce(t *testing.T) {
	_, problems := parse("f.yaml", []byte(`apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  clusterIP: 10.96.0.300
  sesionAffinity: ClientIP
  type: NodePrt
  publishNotReadyAddresses: perhaps
  ports:
  - {name: a, port: http}
  - {name: b, port: [80]}
  - {name: c, port: 80, nodePort: 70000}
---
apiVersion: v1
kind: Service
metadata: {name: two}
spec: {clusterIP: 10.96.0.2, ports: many}
`), reduce.Policy{})
	var got []string
	for _, p := range problems {
		got = append(got, fmt.Sprint(p.Line, " ", p.Field))
	}
	want := []string{
		"5 spec.clusterIP", "6 spec.sesionAffinity", "7 spec.type", "8 spec.publishNotReadyAddresses",
		"10 spec.ports[0].port", "11 spec.ports[1].port", "12 spec.ports[2].nodePort", "17 spec.ports",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q: %v", got, want, problems)
	}
}

// TestParse_Bounded: parse reports a limited number of values of the wrong type, which limits how often an object is
// decoded.
func TestParse_Bounded(t *testing.T) {
	_, problems := parse("f.yaml", []byte("apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  ports:\n"+
		strings.Repeat("  - port: http\n", 1000)), reduce.Policy{})
	if len(problems) != document.MistypedMax {
		t.Errorf("%d problems, want %d", len(problems), document.MistypedMax)
	}
}
