package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// envNodes is the number of nodes of TestRollout.
const envNodes = "SLUICE_E2E_NODES"

// rolloutLease is the Lease of these nodes.
const rolloutLease = "sluice-configuration"

// pool is a number of nodes with one ConfigMap, each with its own kernel rules and Sluice.
type pool struct {
	network *netns.Network
	client  kubernetes.Interface
	config  *harness.ConfigMap
	server  *harness.APIServer
	logs    string
	nodes   []string
	// settle and window are those of the configuration.
	settle, window time.Duration
}

// TestRollout: a configuration that is valid and bad reaches one node, and a good one all nodes.
func TestRollout(t *testing.T) {
	p := newPool(t)
	good, bad := "clusterCIDR: 10.244.0.0/16", `metricsBindAddress: "192.0.2.1:10249"` // an address that no node has
	p.set(t, good)
	for i, name := range p.nodes {
		p.start(t, name)
		if i%10 == 9 || i == len(p.nodes)-1 { // in groups, for the processors
			p.await(t, "start complete", i+1, time.Minute)
		}
	}

	p.set(t, good, bad)
	p.await(t, "going back to the previous one", 1, p.settle+time.Minute)
	if lease := p.lease(t); lease.Annotations["sluice.dev/configuration-result"] != "bad" ||
		!strings.Contains(lease.Annotations["sluice.dev/configuration-reason"], "192.0.2.1:10249") {
		t.Errorf("the result is %v", lease.Annotations)
	}
	took := p.await(t, "changed configuration is not applied", len(p.nodes), p.settle+2*time.Minute)
	time.Sleep(p.window) // a good one would have reached all
	reached := p.with(t, `"configuration changed"`)
	t.Logf("the bad configuration reached %d of %d nodes; all hold it after %v", reached, len(p.nodes), took.Round(time.Second))
	if reached != 1 {
		t.Errorf("a bad configuration reached %d of %d nodes, want 1", reached, len(p.nodes))
	}

	better := "clusterCIDR: 10.245.0.0/16"
	p.set(t, better)
	took = p.await(t, `"to":"10.245.0.0/16"`, len(p.nodes), p.settle+p.window+3*time.Minute)
	t.Logf("the good configuration reached %d of %d nodes in %v (settling time %v, window %v)",
		len(p.nodes), len(p.nodes), took.Round(time.Second), p.settle, p.window)
	lease := p.lease(t)
	if lease.Annotations["sluice.dev/configuration-result"] != "good" {
		t.Errorf("the result is %v", lease.Annotations)
	}
	hash := fmt.Sprintf("sluice_config_hash{hash=%q} 1", lease.Annotations["sluice.dev/configuration-hash"])
	harness.Eventually(t, startMax, "all nodes have the hash of the Lease and are ready", func(ctx context.Context) error {
		for _, name := range p.nodes {
			if err := p.shows(ctx, name, "http://127.0.0.1:10249/metrics", hash); err != nil {
				return err
			}
			if err := p.shows(ctx, name, "http://127.0.0.1:10256/readyz", "ready"); err != nil {
				return err
			}
		}
		return nil
	})

	if err := p.client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(t.Context(), rolloutLease, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.set(t, good)
	p.await(t, "the Lease kube-system/sluice-configuration does not exist", len(p.nodes), p.settle+time.Minute)
	if applied := p.with(t, `"to":"10.244.0.0/16"`); applied > 0 {
		t.Errorf("%d nodes applied a configuration without the Lease", applied)
	}
}

// newPool makes the network, the API server and its objects.
func newPool(t *testing.T) *pool {
	t.Helper()
	count, settle := 6, 5*time.Second
	if text := os.Getenv(envNodes); text != "" {
		number, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		count = number
	}
	if count > 50 {
		settle = 20 * time.Second // the pauses between requests follow it
	}
	p := &pool{config: harness.NewConfigMap(t.TempDir()), logs: t.ArtifactDir(), settle: settle, window: 2 * settle}
	const hub, api = "hub", "api"
	plan := netns.Plan{Cables: []netns.Cable{
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
	var err error
	if p.network, err = netns.Build(plan); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.network.Close(); err != nil {
			t.Error(err)
		}
	})
	p.server, err = harness.NewAPIServer(p.network.Hosts[api], netip.MustParseAddrPort("10.30.0.2:6443"), filepath.Join(t.TempDir(), "control-plane"), p.logs)
	if err == nil {
		err = p.server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.server.Kill(); err != nil {
			t.Error(err)
		}
	})
	if p.client, err = p.server.Client(); err != nil {
		t.Fatal(err)
	}
	if err := p.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// create makes the Nodes, and what deploy/base has for the Lease.
func (p *pool) create(ctx context.Context) error {
	meta := metav1.ObjectMeta{Name: rolloutLease, Namespace: metav1.NamespaceSystem}
	_, err := p.client.CoordinationV1().Leases(meta.Namespace).Create(ctx, &coordinationv1.Lease{ObjectMeta: meta}, metav1.CreateOptions{})
	_, err1 := p.client.RbacV1().Roles(meta.Namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{rolloutLease}, Verbs: []string{"get", "update"},
	}}}, metav1.CreateOptions{})
	_, err2 := p.client.RbacV1().RoleBindings(meta.Namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: rolloutLease},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:kube-proxy"}},
	}, metav1.CreateOptions{})
	err = errors.Join(err, err1, err2)
	for _, name := range p.nodes {
		_, err1 := p.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		err = errors.Join(err, err1)
	}
	return err
}

// set writes the ConfigMap.
func (p *pool) set(t *testing.T, lines ...string) {
	t.Helper()
	text := fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
oomScoreAdj: 0
clientConnection: {kubeconfig: %q}
conntrack: {maxPerCore: 0}
%s
---
apiVersion: sluice.dev/v1alpha1
kind: SluiceConfiguration
log: {format: json}
reload: waves
waves: {settle: %v, window: %v}
`, p.server.ProxyKubeconfig(), strings.Join(lines, "\n"), p.settle, p.window)
	if err := p.config.Set(text); err != nil {
		t.Fatal(err)
	}
}

// start starts Sluice on a node. The nodes get the processor time that the API server leaves.
func (p *pool) start(t *testing.T, name string) {
	t.Helper()
	binary, err := harness.SluiceBinary()
	if err != nil {
		t.Fatal(err)
	}
	process, err := netns.StartDaemon(p.network.Hosts[name], p.log(name), exec.Command("chrt", "--idle", "0", binary, "proxy",
		"--config", p.config.Path(), "--hostname-override", name, "--sluice-state-dir", filepath.Join(p.logs, name)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := process.Kill(); err != nil {
			t.Error(err)
		}
	})
}

func (p *pool) log(name string) string { return filepath.Join(p.logs, name+".log") }

// with counts the nodes whose log contains a text.
func (p *pool) with(t *testing.T, text string) (nodes int) {
	t.Helper()
	for _, name := range p.nodes {
		content, err := os.ReadFile(p.log(name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte(text)) {
			nodes++
		}
	}
	return nodes
}

// await waits until the logs of so many nodes contain a text.
func (p *pool) await(t *testing.T, text string, nodes int, limit time.Duration) time.Duration {
	t.Helper()
	return harness.Eventually(t, limit, fmt.Sprintf("%d nodes log %q", nodes, text), func(context.Context) error {
		if now := p.with(t, text); now < nodes {
			time.Sleep(100 * time.Millisecond)
			return fmt.Errorf("%d of %d nodes", now, nodes)
		}
		return nil
	})
}

func (p *pool) lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	lease, err := p.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), rolloutLease, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease
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
