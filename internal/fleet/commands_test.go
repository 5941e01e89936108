// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/reduce"
	"github.com/sluice-proxy/sluice/test/apitest"
)

// TestWait_Service: wait ends when enough nodes have applied the Service, and names the others at the timeout.
func TestWait_Service(t *testing.T) {
	s := newStand(t, 4)
	s.nodes[3].detail = func(d *inspect.ServiceDetail) { d.State = state.Pending }
	out, err := s.run(t, "wait", "svc/web", "--timeout", "1500ms")
	if err == nil || !strings.HasPrefix(err.Error(), "shop/web is applied on 3 of 4 nodes after 1.5s, want 4") {
		t.Errorf("%v", err)
	}
	wants(t, out, "applied on 3 of 4 nodes", "node-0003   pending")
	for _, nodes := range []string{"75%", "3", "51%"} {
		if out, err := s.run(t, "wait", "svc/web", "--nodes", nodes, "--for=applied"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	if _, err := s.run(t, "wait", "svc/none", "--timeout", "2s"); err == nil || !strings.Contains(err.Error(), "no Service none") {
		t.Errorf("%v", err)
	}
}

// TestWait_NewEndpoints: wait does not count nodes that have applied all they know, but do not know the newest
// endpoints.
func TestWait_NewEndpoints(t *testing.T) {
	s := newStand(t, 2)
	slice := webSlice("10.244.0.1", "10.244.0.2", "10.244.0.3")
	s.api.Set(apitest.EndpointSlices, slice)
	if out, err := s.run(t, "wait", "svc/web", "--timeout", "2s"); err == nil || !strings.Contains(out, "behind") {
		t.Errorf("%v\n%s", err, out)
	}
	reduced, _ := reduce.Policy{}.EndpointSlice(slice)
	for _, n := range s.nodes {
		n.known.Slices = []*service.Slice{reduced}
	}
	if out, err := s.run(t, "wait", "svc/web", "--timeout", "10s"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestWait_EndpointGone: wait --gone ends when all nodes report that the endpoint is gone.
func TestWait_EndpointGone(t *testing.T) {
	s := newStand(t, 3)
	s.nodes[0].gone, s.nodes[1].gone = true, true
	out, err := s.run(t, "wait", "--gone", "10.244.0.1:8080", "--timeout", "1s")
	if err == nil || err.Error() != "10.244.0.1:8080 is not known to be out on 1 of 3 nodes after 1s" {
		t.Errorf("%v", err)
	}
	wants(t, out, "node-0000   gone", "node-0001   gone", "node-0002   in use")
	s.nodes[2].gone = true
	if out, err := s.run(t, "wait", "--gone", "10.244.0.1"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	s.api.Remove(apitest.Pods, "kube-system", "sluice-node-0002")
	out, err = s.run(t, "wait", "--gone", "10.244.0.1", "--timeout", "300ms")
	if err == nil {
		t.Error("a node without a proxy counts")
	}
	wants(t, out, "node-0002   unreachable", "no pod of Sluice")
}

// TestDiff: diff shows the differences between two nodes.
func TestDiff(t *testing.T) {
	s := newStand(t, 3)
	s.nodes[1].detail = func(d *inspect.ServiceDetail) { d.State, d.Endpoints = state.Pending, 1 }
	out, err := s.run(t, "diff", "node-0000", "node-0001")
	if err == nil || err.Error() != "2 differences" {
		t.Errorf("%v", err)
	}
	wants(t, out, "SERVICE    FIELD       NODE-0000   NODE-0001", "shop/web   state       applied     pending", "shop/web   endpoints   2           1")
	if out, err := s.run(t, "diff", "node-0000", "node-0002"); err != nil || !strings.Contains(out, "No differences between") {
		t.Errorf("%v\n%s", err, out)
	}
	s.nodes[2].known.Spec = nil
	out, _ = s.run(t, "diff", "node-0000", "node-0002")
	wants(t, out, "shop/web   known   true        false")
	if _, err := s.run(t, "diff", "node-0000", "nowhere"); err == nil || err.Error() != "no node nowhere" {
		t.Errorf("%v", err)
	}
}

// TestTop_Sums: top adds the numbers of all nodes.
func TestTop_Sums(t *testing.T) {
	s := newStand(t, 2)
	s.nodes[0].items = []inspect.TopItem{{Namespace: "a", Name: "x", Connections: 3}, {Namespace: "a", Name: "y", Connections: 4}}
	s.nodes[1].items = []inspect.TopItem{{Namespace: "a", Name: "x", Connections: 2}}
	out, err := s.run(t, "top", "services", "--limit", "1")
	if err != nil {
		t.Fatal(err)
	}
	wants(t, out, "a           x      5 ", "in the last 60s; 1 more omitted")
	s.api.Proxy(proxyAllBut(s, "sluice-node-0001:10253"))
	out, err = s.run(t, "top", "services")
	if err == nil {
		t.Error("no error although a node is missing")
	}
	wants(t, out, "a           y      4 ", "1 of 2 nodes did not answer")
}

// TestExplain_AsksNodeWithPod: explain queries the node on which the pod runs.
func TestExplain_AsksNodeWithPod(t *testing.T) {
	s := newStand(t, 2)
	client := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "client"}, Spec: corev1.PodSpec{NodeName: "node-0001"},
		Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "fd00::5"}, {IP: "10.244.1.5"}}},
	}
	s.api.Set(apitest.Pods, client)
	for _, words := range [][]string{{"pod/client", "svc/web:http"}, {"client", "web"}, {"po/client", "svc/web.shop.svc:80/tcp"}} {
		if out, err := s.run(t, append([]string{"explain"}, words...)...); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	if len(s.nodes[0].flows) != 0 || len(s.nodes[1].flows) != 3 {
		t.Fatalf("%v, %v", s.nodes[0].flows, s.nodes[1].flows)
	}
	for _, q := range s.nodes[1].flows {
		if q.From.Addr() != netip.MustParseAddr("10.244.1.5") || q.To != netip.MustParseAddrPort("10.96.0.7:80") || q.Protocol != service.TCP {
			t.Errorf("%+v", q)
		}
	}
	for words, want := range map[string]string{
		"pod/none svc/web":          "no Pod none in namespace shop",
		"pod/client svc/web.other":  "no Service web in namespace other",
		"pod/client svc/web:https":  `"svc/web:https": must end in one of the ports :http (80/TCP)`,
		"pod/client svc/web:http:2": `"svc/web:http:2": must end in`,
	} {
		if _, err := s.run(t, append([]string{"explain"}, strings.Fields(words)...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", words, err, want)
		}
	}
}

// TestExplain_UnservedServices: explain names Services that no node serves. Proxies do not watch headless Services, so
// it queries the API server.
func TestExplain_UnservedServices(t *testing.T) {
	s := newStand(t, 1)
	s.api.Set(apitest.Pods, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "client"}, Spec: corev1.PodSpec{NodeName: "node-0000"},
		Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.244.1.5"}}},
	})
	headless := webService()
	headless.Name, headless.Spec.ClusterIP, headless.Spec.ClusterIPs = "db", corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	headless.Spec.ExternalIPs = []string{"203.0.113.111"}
	s.api.Set(apitest.Services, headless)
	s.nodes[0].answer = explain.Answer{Reasons: []string{"first", explain.UnknownHere + ": some", "last"}}
	for to, want := range map[string]string{
		"203.0.113.111:80":      "first\n203.0.113.111 is an external IP of shop/db, which is headless",
		"203.0.113.112:80/udp":  "first\nno Service of the cluster lists 203.0.113.112\nlast",
		"[2001:db8::1]:80":      "no common family: pod client has no address of the family of 2001:db8::1",
		"203.0.113.112:80/icmp": "must be an address and port",
		"svc/db":                "no node serves shop/db: it is headless",
	} {
		out, err := s.run(t, "explain", "pod/client", to)
		got := strings.Join(strings.Fields(out+fmt.Sprint(err)), " ")
		if !strings.Contains(got, strings.ReplaceAll(want, "\n", " ")) || strings.Contains(got, explain.UnknownHere) {
			t.Errorf("%s: %s, want %q", to, got, want)
		}
	}
	if _, err := s.run(t, "wait", "svc/db", "--for=applied"); err == nil || !strings.Contains(err.Error(), "it is headless") {
		t.Errorf("wait: %v", err)
	}
}

// TestCommands_OtherInvalidArguments: the other commands reject invalid arguments with a usage error.
func TestCommands_OtherInvalidArguments(t *testing.T) {
	s := newStand(t, 1)
	for words, want := range map[string]string{
		"wait":                      `the arguments must be "svc/NAME", got ""`,
		"wait svc/web --nodes 0":    `--nodes "0": must be a number`,
		"wait svc/web --nodes 101%": `--nodes "101%"`,
		"wait svc/web --for ready":  `--for "ready": must be applied`,
		"wait --gone ten":           `--gone: endpoint "ten"`,
		"wait svc/web --gone ::1":   `the arguments must be "", got `,
		"wait svc/web --timeout 0s": "--timeout 0s: must be positive",
		"diff one":                  `must be "NODE NODE", got "one"`,
		"top":                       `must be "services"`,
		"top services --by age":     `--by "age": must be connections`,
		"explain pod/a":             `must be "pod/NAME svc/NAME"`,
	} {
		_, err := s.run(t, strings.Fields(words)...)
		if _, usage := errors.AsType[inspect.UsageError](err); !usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", words, err, want)
		}
	}
}

// TestCommands_Interrupted: an interrupt ends the queries, and nodes without an answer are listed.
func TestCommands_Interrupted(t *testing.T) {
	s := newStand(t, 20)
	for _, n := range s.nodes {
		n.slow = 5 * time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	f := &flags{proxyNamespace: "kube-system", selector: "app.kubernetes.io/name=sluice", port: 10253, parallel: 2, nodeTimeout: time.Minute}
	c, err := f.connect()
	if err != nil {
		t.Fatal(err)
	}
	report, err := c.status(ctx, false)
	if err != nil || len(report.Silent) != 20 {
		t.Errorf("%v, %+v", err, report)
	}
}

// TestReports_AreLists: the formats of kubectl treat the nodes of a report as the items of a list.
func TestReports_AreLists(t *testing.T) {
	s := newStand(t, 3)
	for format, want := range map[string]string{
		"name":                         "node-0002\nnode-0001\nnode-0000\n",
		"jsonpath={.nodes[*].node}":    "node-0002 node-0001 node-0000",
		"jsonpath={.kind}/{.versions}": `StatusReport/{"v0.1.0":3}`,
	} {
		out, err := s.run(t, "status", "--sort-by", "node", "--reverse", "--no-headers", "-o", format)
		if err != nil || out != want {
			t.Errorf("%s: %v\n%q, want %q", format, err, out, want)
		}
	}
	if _, err := s.run(t, "status", "--sort-by", "weather"); err == nil || !strings.Contains(err.Error(), "must be a column: NODE, ") {
		t.Errorf("%v", err)
	}
}

// TestReports_EmptyList: for an empty list, one sentence is printed on standard error. Nodes that did not answer remain
// in the output.
func TestReports_EmptyList(t *testing.T) {
	s := newStand(t, 2)
	for words, want := range map[string]string{
		"top services": "No traffic of Services.\n", "top services -n shop": "No traffic of Services in namespace shop.\n",
		"status --problems": "No problems on 2 nodes.\n", "diff node-0000 node-0001": "No differences between node-0000 and node-0001.\n",
	} {
		var out, notes bytes.Buffer
		root := Command("kubectl-sluice", "v0.1.0")
		root.SetArgs(strings.Fields(words))
		root.SetOut(&out)
		root.SetErr(&notes)
		if err := root.ExecuteContext(t.Context()); err != nil || out.Len() > 0 || notes.String() != want {
			t.Errorf("%s: %v, standard output %q, standard error %q, want %q", words, err, &out, &notes, want)
		}
	}
	s.pod("node-0001", corev1.PodPending)
	out, err := s.run(t, "top", "services")
	if err == nil || strings.Contains(out, "NAMESPACE") || !strings.Contains(out, "No traffic of Services.\n") || !strings.Contains(out, "node-0001") {
		t.Errorf("with a silent node: %v, %q", err, out)
	}
}
