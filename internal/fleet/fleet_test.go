// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/source/reduce"
	"github.com/sluice-proxy/sluice/test/apitest"
)

// wants fails unless a text has all others, in this order.
func wants(t *testing.T, text string, all ...string) {
	t.Helper()
	rest := text
	for _, one := range all {
		_, after, found := strings.Cut(rest, one)
		if !found {
			t.Fatalf("%q is not in (the rest of):\n%s", one, text)
		}
		rest = after
	}
}

// TestStatus_ProblemsFirst: status lists nodes with problems first.
func TestStatus_ProblemsFirst(t *testing.T) {
	s := newStand(t, 4)
	s.nodes[1].status = func(s *inspect.Status) {
		s.Health, s.Domains[0].Held = "degraded", 5
		s.Findings = []inspect.Finding{{Finding: state.Finding{Kind: "dataplane"}}, {Finding: state.Finding{Kind: "dataplane"}}}
	}
	s.nodes[2].status = func(s *inspect.Status) {
		s.Health, s.Version, s.Domains[0].Held, s.Domains[1].Pending = "unhealthy", "v0.2.0", 2, 3 // Healthy is true in v0.2.0
		s.Domains[1].OldestPending, s.Activity.Lag.P99Micros = s.Now.Add(-90*time.Second), 1500
	}
	s.nodes[3].status = func(s *inspect.Status) { s.Health = "starting" }
	out, err := s.run(t, "status")
	if err != nil {
		t.Fatal(err)
	}
	wants(t, out, "NODE", "HEALTH", "FINDINGS", "node-0002   unhealthy   nftables   v0.2.0    0123456789ab   60m   10000      3         2      1.50ms", "node-0001   degraded", "dataplane", "node-0003   starting", "node-0000   healthy",
		"4 of 4 nodes answered; versions: v0.1.0 (3), v0.2.0 (1); modes: nftables (4); configurations: 0123456789ab (4)")
	if strings.Contains(out, "not that of most") {
		t.Error(out)
	}
	if out, err = s.run(t, "status", "--problems", "-o", "wide"); err != nil || strings.Contains(out, "node-0000") || strings.Contains(out, "node-0003") {
		t.Errorf("%v\n%s", err, out)
	}
	wants(t, out, "OLDEST", "90.0s")
}

// TestStatus_CountsLikeNodes: status counts as the nodes do: a Service is pending or held once, regardless of its
// domains.
func TestStatus_CountsLikeNodes(t *testing.T) {
	s := newStand(t, 1)
	s.nodes[0].status = func(s *inspect.Status) {
		s.States = &state.Counts{Applied: 5, Pending: 4, Held: 3}
		s.Domains[0].Pending, s.Domains[0].Held, s.Domains[1].Pending = 2, 1, 2
	}
	out, err := s.run(t, "status", "-o", "jsonpath={.nodes[0].pending} {.nodes[0].quarantined}")
	if err != nil || out != "4 3" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestStatus_OtherConfigurations: status names nodes with another configuration than most.
func TestStatus_OtherConfigurations(t *testing.T) {
	s := newStand(t, 4)
	s.nodes[2].status = func(s *inspect.Status) { s.ConfigurationHash = "ba9876543210" }
	s.nodes[3].status = func(s *inspect.Status) { s.ConfigurationHash = "" }
	out, err := s.run(t, "status")
	if err != nil {
		t.Fatal(err)
	}
	wants(t, out, "CONFIG", "configurations: 0123456789ab (2), ba9876543210 (1), unknown (1)", "the configuration is not that of most nodes on node-0002, node-0003")
	out, err = s.run(t, "diff", "node-0000", "node-0002")
	if err == nil || err.Error() != "1 difference" {
		t.Errorf("%v", err)
	}
	wants(t, out, "configurationHash", "0123456789ab   ba9876543210")
}

// TestCommands_NodesWithoutAnswer: nodes without an answer are named, with the reason.
func TestCommands_NodesWithoutAnswer(t *testing.T) {
	s := newStand(t, 5)
	s.api.Remove(apitest.Pods, "kube-system", "sluice-node-0001")
	s.pod("node-0002", corev1.PodPending)
	s.nodes[3].slow = 6 * time.Second
	s.api.Proxy(proxyAllBut(s, "sluice-node-0004:10253"))
	out, err := s.run(t, "status", "--node-timeout", "3s")
	if err == nil || err.Error() != "4 of 5 nodes did not answer" {
		t.Errorf("%v", err)
	}
	wants(t, out, "1 of 5 nodes answered", "4 of 5 nodes did not answer", "node-0001", "no pod of Sluice on this node", "node-0002", "pod sluice-node-0002 is pending",
		"node-0003", "no answer within 3s", "node-0004", "connection refused")

	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods/proxy"}, "sluice", errors.New("no right"))
	s.api.Reject("pods/proxy", forbidden)
	s.api.Reject("nodes", forbidden)
	out, _ = s.run(t, "status")
	wants(t, out, "nodes without a pod of Sluice are not known", "no right", "4 of 4 nodes did not answer", "is forbidden")
}

// TestWhere_Reasons: where lists the nodes that have not applied a Service, with the reasons.
func TestWhere_Reasons(t *testing.T) {
	s := newStand(t, 6)
	old, _ := reduce.Policy{}.EndpointSlice(webSlice("10.244.0.1"))
	behind := s.nodes[1].known
	behind.Slices = append(behind.Slices[:0:0], old)
	s.nodes[1].known = behind
	s.nodes[2].detail = func(d *inspect.ServiceDetail) {
		d.State, d.Domains[0].State = state.Rejected, state.Rejected
		d.Domains[0].Quarantine = &state.Quarantine{Reason: "kernel rejects:\n no space", Since: d.Now.Add(-3 * time.Minute)}
		d.Domains[0].Quarantine.Since = time.Now().Add(-3 * time.Minute)
	}
	s.nodes[3].known.Spec = nil
	s.nodes[4].detail = func(d *inspect.ServiceDetail) { d.State, d.Actor.LastFailure = state.Failing, "panic: x" }
	out, err := s.run(t, "where", "svc/web")
	if err == nil || err.Error() != "shop/web is not applied on 4 of 6 nodes" {
		t.Errorf("%v", err)
	}
	wants(t, out, "shop/web is applied on 2 of 6 nodes", "node-0001   behind", "differ from those of the API server",
		"node-0002   held (rejected)        3m0s    2           nftables/IPv4: kernel rejects: no space", "node-0003   unknown", "node-0004   held (actor failing)", "panic: x")
	if strings.Contains(out, "node-0000") {
		t.Error(out)
	}
	out, _ = s.run(t, "where", "web", "-o", "json")
	var report whereReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Nodes) != 6 || report.Applied != 2 {
		t.Errorf("%v: %s", err, out)
	}
	s.api.Reject("endpointslices", apierrors.NewForbidden(schema.GroupResource{Resource: "endpointslices"}, "", errors.New("no right")))
	out, _ = s.run(t, "where", "svc/web", "-o", "wide")
	wants(t, out, "applied on 3 of 6", "node-0000", "nodes that are behind are not known")
}

// TestCommands_InvalidArguments: invalid arguments are rejected with an error that describes the valid ones.
func TestCommands_InvalidArguments(t *testing.T) {
	s := newStand(t, 1)
	for words, want := range map[string]string{
		"where":                         `the arguments must be "svc/NAME", got ""`,
		"where pod/web":                 `"pod/web": must be svc/NAME`,
		"where svc/shop/web":            "must be svc/NAME",
		"status x":                      `the arguments must be "", got `,
		"status --parallel 0":           "--parallel 0: must be from 1 to 512",
		"observe --output name":         "must be wide, json or yaml",
		"status --output table2":        "must be wide, json, yaml, name or ",
		"status --node-timeout 0s":      "must be positive",
		"status --port 0":               "--port 0",
		"status --unknown":              "unknown flag",
		"nothing":                       `unknown command "nothing"`,
		"where svc/none":                "no Service none in namespace shop",
		"where svc/web -n other":        "no Service web in namespace other",
		"status --selector app=another": "no nodes",
		"status --context none":         `kubeconfig: context "none" does not exist`,
	} {
		if words == "status --selector app=another" {
			s.api.Remove(apitest.Nodes, "", "node-0000")
			want = "no pods in namespace kube-system have the labels app=another"
		}
		_, err := s.run(t, strings.Fields(words)...)
		_, usage := errors.AsType[inspect.UsageError](err)
		api := strings.Contains(want, "no Service") || strings.Contains(want, "no pods") || strings.Contains(want, "kubeconfig")
		if err == nil || !strings.Contains(err.Error(), want) || usage == api {
			t.Errorf("%s: %v (usage %t), want %s", words, err, usage, want)
		}
	}
}
