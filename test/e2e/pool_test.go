// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/harness"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// envNodes is the number of nodes of TestDaemonSet_ReleaseNeverWrites and TestConfiguration_RollsOut.
const envNodes = "SLUICE_E2E_NODES"

// pool is a number of nodes with an API server, each with its own kernel rules and Sluice.
type pool struct {
	network *netnstest.Network
	client  kubernetes.Interface
	server  *harness.APIServer
	logs    string
	nodes   []string
}

// newPool makes the network, the API server and its objects, with count nodes unless envNodes is set.
func newPool(t *testing.T, count int) *pool {
	t.Helper()
	if text := os.Getenv(envNodes); text != "" {
		number, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		count = number
	}
	p := &pool{logs: t.ArtifactDir()}
	const hub, api = "hub", "api"
	plan := netnstest.Plan{Cables: []netns.Cable{
		{Router: hub, Leaf: api, Port: api, AtRouter: netns.Prefixes("10.30.0.1/24"), AtLeaf: netns.Prefixes("10.30.0.2/24")},
	}}
	at := netip.MustParseAddr("10.31.0.0")
	for i := range count {
		router := at.Next()
		leaf := router.Next()
		name := fmt.Sprintf("node-%03d", i)
		p.nodes = append(p.nodes, name)
		plan.Cables = append(plan.Cables, netns.Cable{Router: hub, Leaf: name, Port: fmt.Sprintf("n%d", i),
			AtRouter: []netip.Prefix{netip.PrefixFrom(router, 30)}, AtLeaf: []netip.Prefix{netip.PrefixFrom(leaf, 30)}})
		at = leaf.Next().Next()
	}
	p.network = netnstest.Build(t, plan)
	p.server = harness.NewAPIServer(harness.APIServerProgram(t), p.network.Hosts[api], netip.MustParseAddrPort("10.30.0.2:6443"),
		filepath.Join(t.TempDir(), "control-plane"), p.logs)
	if err := p.server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.server.Kill(); err != nil {
			t.Error(err)
		}
	})
	var err error
	if p.client, err = p.server.Client(); err != nil {
		t.Fatal(err)
	}
	if err := p.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// create makes the Nodes.
func (p *pool) create(ctx context.Context) (err error) {
	for _, name := range p.nodes {
		_, err1 := p.client.CoreV1().Nodes().Create(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux"}}}, metav1.CreateOptions{})
		err = errors.Join(err, err1)
	}
	return err
}

// shows checks that a page of a node contains a text.
func (p *pool) shows(ctx context.Context, name, url, text string) error {
	page, err := (&harness.Host{Namespace: p.network.Hosts[name]}).Get(ctx, url)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !strings.Contains(page.Body, text) {
		return fmt.Errorf("%s: no %q at %s", name, text, url)
	}
	return nil
}

// podAddress is that of the pod, on the cable to the API server.
var podAddress = netip.MustParseAddrPort("10.30.0.2:8080")

// createService makes a Service with one pod, which all nodes reach, and returns its address.
func (p *pool) createService(t *testing.T) netip.AddrPort {
	t.Helper()
	if err := p.network.Serve("web", "api", podAddress); err != nil {
		t.Fatal(err)
	}
	return p.createServiceAs(t, "web")
}

// createLargeService makes such a Service with 20 external IPs.
func (p *pool) createLargeService(t *testing.T) netip.AddrPort {
	t.Helper()
	var external []string
	for i := range 20 {
		external = append(external, fmt.Sprintf("198.18.0.%d", i+1))
	}
	return p.createServiceAs(t, "large", external...)
}

func (p *pool) createServiceAs(t *testing.T, name string, external ...string) netip.AddrPort {
	t.Helper()
	pod := podAddress
	service, err := p.client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{ExternalIPs: external, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(int32(pod.Port()))}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.client.DiscoveryV1().EndpointSlices("default").Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{pod.Addr().String()}}},
		Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(pod.Port()))}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(netip.MustParseAddr(service.Spec.ClusterIP), 80)
}
