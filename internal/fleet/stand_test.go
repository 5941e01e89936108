// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/reduce"
	"github.com/sluice-proxy/sluice/test/apitest"
)

// node is the proxy of one node. Fields are changed before the node is asked.
type node struct {
	inspect.Source
	name   string
	slow   time.Duration
	status func(*inspect.Status)
	detail func(*inspect.ServiceDetail)
	items  []inspect.TopItem
	gone   bool
	known  service.Snapshot
	// stream is the stream of records.
	stream func(ctx context.Context, each func(*inspect.FlowEvent) error) error

	mu    sync.Mutex
	flows []explain.Flow
	// answer is that about a connection.
	answer explain.Answer
}

func (n *node) Ready(context.Context) error { return nil }

func (n *node) Status() inspect.Status {
	time.Sleep(n.slow)
	s := inspect.Status{
		Node: n.name, Mode: "nftables", Version: "v0.1.0", Healthy: true, Health: "healthy", Services: 10_000, ConfigurationHash: "0123456789ab", Now: time.Now(), Started: time.Now().Add(-time.Hour),
		Domains: []inspect.Domain{{Name: "nftables/IPv4", Applied: 10_000}, {Name: "nftables/IPv6"}},
	}
	s.Activity.Lag.Counts, s.Activity.Changes.Counts = make([]int, 90), make([]int, 90)
	if n.status != nil {
		n.status(&s)
	}
	return s
}

func (n *node) Service(_ context.Context, key service.Key) *inspect.ServiceDetail {
	if n.known.Spec == nil || n.known.Spec.Key != key {
		return nil
	}
	d := &inspect.ServiceDetail{Digest: inspect.Digest(n.known), Domains: []inspect.ServiceDomain{{Name: "nftables/IPv4", State: state.Applied, Objects: make([]inspect.Object, 500)}}}
	d.Namespace, d.Name, d.State, d.Endpoints = key.Namespace, key.Name, state.Applied, 2
	if n.detail != nil {
		n.detail(d)
	}
	return d
}

func (n *node) Services(_ context.Context, _ func(service.Key) bool, yield func(*inspect.Service) bool) {
	if d := n.Service(context.Background(), service.Key{Namespace: "shop", Name: "web"}); d != nil {
		yield(&d.Service)
	}
}

func (n *node) Top(context.Context, inspect.TopQuery) (*inspect.TopList, error) {
	return &inspect.TopList{Items: append([]inspect.TopItem(nil), n.items...), From: time.Now().Add(-time.Minute), Counted: inspect.TopCounted{Connections: true}}, nil
}

func (n *node) Gone(_ context.Context, q inspect.GoneQuery) *inspect.Gone {
	return &inspect.Gone{Endpoint: inspect.EndpointText(q.At), Gone: n.gone}
}

func (n *node) Explain(_ context.Context, q explain.Flow) (*explain.Answer, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.flows = append(n.flows, q)
	answer := n.answer
	return &answer, nil
}

func (n *node) Observe(ctx context.Context, _ inspect.FlowQuery, each func(*inspect.FlowEvent) error) error {
	if err := each(nil); err != nil {
		return err
	}
	return n.stream(ctx, each)
}

// stand is an API server with the Service shop/web, and a proxy on each node.
type stand struct {
	api        *apitest.Server
	nodes      []*node
	kubeconfig string
	// handlers are those of the pods.
	handlers map[string]http.Handler
}

func newStand(t testing.TB, nodes int) *stand {
	t.Helper()
	api, err := apitest.New(net.Listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Stop() })
	s := &stand{api: api, kubeconfig: filepath.Join(t.TempDir(), "config")}
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"http://%s"}}],
		"users":[{"name":"u","user":{}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u","namespace":"shop"}}]}`, api.Address())
	if err := os.WriteFile(s.kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", s.kubeconfig)
	known := service.Snapshot{}
	web, slice := webService(), webSlice("10.244.0.1", "10.244.0.2")
	known.Spec, _ = reduce.Policy{}.Service(web)
	reduced, _ := reduce.Policy{}.EndpointSlice(slice)
	known.Slices = []*service.Slice{reduced}
	api.Set(apitest.Services, web)
	api.Set(apitest.EndpointSlices, slice)
	s.handlers = map[string]http.Handler{}
	for i := range nodes {
		n := &node{name: fmt.Sprintf("node-%04d", i), known: known}
		s.nodes = append(s.nodes, n)
		s.handlers["sluice-"+n.name+":10253"] = inspect.Remote("v0.1.0", n, true)
		api.Set(apitest.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{corev1.LabelOSStable: "linux"}}})
		s.pod(n.name, corev1.PodRunning)
	}
	api.Proxy(func(_, pod string) http.Handler { return s.handlers[pod] })
	return s
}

// pod sets the pod of Sluice on a node.
func (s *stand) pod(node string, phase corev1.PodPhase) { s.podNamed(node, node, phase) }

// podNamed sets a pod of Sluice on a node.
func (s *stand) podNamed(name, node string, phase corev1.PodPhase) {
	s.api.Set(apitest.Pods, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "sluice-" + name, Labels: map[string]string{"app.kubernetes.io/name": "sluice"}},
		Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase},
	})
}

func webService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7"},
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}},
	}
}

func webSlice(addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(int32(8080))}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{netip.MustParseAddr(a).String()}})
	}
	return s
}

// run runs a command as the program does.
func (s *stand) run(t testing.TB, words ...string) (out string, err error) {
	t.Helper()
	var to bytes.Buffer
	root := Command("kubectl-sluice", "v0.1.0")
	root.SetArgs(words)
	root.SetOut(&to)
	root.SetErr(&to)
	err = root.ExecuteContext(t.Context())
	return to.String(), err
}
