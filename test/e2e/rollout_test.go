package e2e

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/test/harness"
	"github.com/sluice-proxy/sluice/test/process"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// rolloutLease is the Lease of these nodes.
const rolloutLease = "sluice-configuration"

// TestRollout: a configuration that is valid and bad reaches one node, and a good one all nodes.
func TestRollout(t *testing.T) {
	p := newPool(t, 6)
	good, bad := "clusterCIDR: 10.244.0.0/16", `metricsBindAddress: "192.0.2.1:10249"` // an address that no node has
	p.set(t, good)
	for i, name := range p.nodes {
		p.start(t, name)
		if i%10 == 9 || i == len(p.nodes)-1 { // in groups, for the processors
			p.await(t, "start complete", i+1)
		}
	}

	p.set(t, good, bad)
	p.await(t, "going back to the previous one", 1)
	harness.Eventually(t, "the Lease has the result", func(context.Context) error {
		lease := p.lease(t)
		if lease.Annotations["sluice.dev/configuration-result"] != "bad" ||
			!strings.Contains(lease.Annotations["sluice.dev/configuration-reason"], "192.0.2.1:10249") {
			return fmt.Errorf("the result is %v", lease.Annotations)
		}
		return nil
	})
	took := p.await(t, "changed configuration is not applied", len(p.nodes))
	reached := p.with(t, `"configuration changed"`)
	t.Logf("the bad configuration reached %d of %d nodes; all hold it after %v", reached, len(p.nodes), took.Round(time.Second))
	if reached != 1 {
		t.Errorf("a bad configuration reached %d of %d nodes, want 1", reached, len(p.nodes))
	}

	better := "clusterCIDR: 10.245.0.0/16"
	p.set(t, better)
	took = p.await(t, `"to":"10.245.0.0/16"`, len(p.nodes))
	t.Logf("the good configuration reached %d of %d nodes in %v (settling time %v, window %v)",
		len(p.nodes), len(p.nodes), took.Round(time.Second), p.settle, p.window)
	lease := p.lease(t)
	if lease.Annotations["sluice.dev/configuration-result"] != "good" {
		t.Errorf("the result is %v", lease.Annotations)
	}
	hash := fmt.Sprintf("sluice_config_hash{hash=%q} 1", lease.Annotations["sluice.dev/configuration-hash"])
	harness.Eventually(t, "all nodes have the hash of the Lease and are ready", func(ctx context.Context) error {
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

	// A change that ends the waves is one, too. Afterwards, a change needs no Lease.
	before := p.lease(t).Annotations["sluice.dev/configuration-hash"]
	p.reload = "immediately"
	p.set(t, better)
	p.await(t, `"to":"immediately"`, len(p.nodes))
	harness.Eventually(t, "the Lease has the result of the last wave", func(context.Context) error {
		if a := p.lease(t).Annotations; a["sluice.dev/configuration-result"] != "good" || a["sluice.dev/configuration-hash"] == before {
			return fmt.Errorf("the Lease has %v", a)
		}
		return nil
	})
	p.reload = "waves"
	p.set(t, better)
	p.await(t, `"from":"immediately"`, len(p.nodes))

	if err := p.client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(t.Context(), rolloutLease, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.set(t, good)
	p.await(t, "the Lease kube-system/sluice-configuration does not exist", len(p.nodes))
	if applied := p.with(t, `"to":"10.244.0.0/16"`); applied > 0 {
		t.Errorf("%d nodes applied a configuration without the Lease", applied)
	}
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
reload: %s
waves: {settle: %v, window: %v}
`, p.server.ProxyKubeconfig(), strings.Join(lines, "\n"), cmp.Or(p.reload, "waves"), p.settle, p.window)
	if err := p.config.Set(text); err != nil {
		t.Fatal(err)
	}
}

// start starts Sluice on a node. Many nodes get the CPU time that the API server leaves.
func (p *pool) start(t *testing.T, name string) {
	t.Helper()
	words := []string{testenv.Program(t), "proxy", "--config", p.config.Path(), "--hostname-override", name, "--sluice-state-dir", filepath.Join(p.logs, name)}
	if len(p.nodes) > 10 {
		words = append([]string{"chrt", "--idle", "0"}, words...)
	}
	process, err := process.StartDaemon(p.network.Hosts[name], p.log(name), exec.Command(words[0], words[1:]...))
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
func (p *pool) await(t *testing.T, text string, nodes int) time.Duration {
	t.Helper()
	return harness.Within(t, rolledMax, fmt.Sprintf("%d nodes log %q", nodes, text), func(context.Context) error {
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
