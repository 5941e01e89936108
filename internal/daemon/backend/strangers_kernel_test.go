// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/manifest"
	"github.com/sluice-proxy/sluice/supervisor"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// inside runs a writer in the namespace of a test.
type inside struct {
	dataplane.Writer
	namespace *netns.Namespace
}

func (w inside) Write(ctx context.Context, batch *dataplane.Batch) (receipt dataplane.Receipt) {
	err := w.namespace.Do(func() error {
		receipt = w.Writer.Write(ctx, batch)
		return nil
	})
	if err != nil {
		return dataplane.Receipt{Outcome: dataplane.Unknown, Err: err}
	}
	return receipt
}

func (w inside) Read(ctx context.Context) (objects []dataplane.Object, err error) {
	err = w.namespace.Do(func() (err error) {
		objects, err = w.Writer.Read(ctx)
		return err
	})
	return objects, err
}

func (w inside) Watch(ctx context.Context, changed func(dataplane.ForeignProcess)) error {
	return w.namespace.Do(func() error { return w.Writer.Watch(ctx, changed) })
}

// tally counts audits, writes, and fragments applied.
type tally struct{ audits, writes, applied atomic.Int64 }

func (c *tally) Supervisor(supervisor.Event[service.Key]) {}
func (c *tally) Actors(actors.Event)                      {}

func (*tally) Source(source.Shadowed) {}

func (c *tally) Aggregator(e aggregator.Event) {
	switch e := e.(type) {
	case aggregator.AuditDone:
		c.audits.Add(1)
	case aggregator.BatchWritten:
		if len(e.Batch.Changes) > 0 {
			c.writes.Add(1)
		}
	case aggregator.Applied:
		c.applied.Add(1)
	}
}

// serve runs the proxy in iptables mode on a folder of manifests until the test ends.
func (n *node) serve(variant, manifests string) *tally {
	n.Helper()
	domains, err := n.domains(IPTablesOptions{Variant: variant, MasqueradeBit: 14})
	if err != nil {
		n.Fatal(err)
	}
	for i := range domains {
		w := inside{domains[i].Writer, n.namespace}
		domains[i].Writer = dataplane.Writer{Write: w.Write, Read: w.Read, Watch: w.Watch}
		domains[i].Pace.Audit = 24 * time.Hour // repairs nothing in a test
	}
	c := new(tally)
	p, err := proxy.New(proxy.Config{
		Node: proxy.NodeSettings{Name: "demo"}, Domains: domains, Listeners: []observe.Listener{c},
		Source: func(ctx context.Context, cache *source.Cache) error {
			return manifest.New(manifests, cache, "demo", n.log).Run(ctx)
		},
	})
	if err != nil {
		n.Fatal(err)
	}
	ctx, cancel := context.WithCancel(n.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	n.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			n.Error(err)
		}
	})
	select {
	case <-p.FirstSync():
	case <-time.After(testenv.Patience):
		n.Fatal("nothing is applied")
	}
	return c
}

// rules returns the rules of the proxy, in both families, without comments and counters.
func (n *node) rules(variant string) string {
	n.Helper()
	var kept []string
	for line := range strings.Lines(n.sh("iptables-" + variant + "-save; ip6tables-" + variant + "-save")) {
		if !strings.HasPrefix(line, "#") && strings.Contains(line, "KUBE-") {
			kept = append(kept, strings.SplitN(line, " [", 2)[0])
		}
	}
	return strings.Join(kept, "\n")
}

// TestKernelRepair_ForeignDeletions: rules that another program deletes are restored without the periodic audit.
func TestKernelRepair_ForeignDeletions(t *testing.T) {
	for _, variant := range testenv.Variants("nft", "legacy") {
		t.Run(variant, func(t *testing.T) {
			n := newNode(t)
			n.serve(variant, filepath.Join("..", "..", "..", "examples", "web"))
			want := n.rules(variant)
			chain := firstService(want)
			for _, deletion := range []string{
				"PROGRAM -t nat -F " + chain,
				"PROGRAM -t nat -D " + chain + " 1",
				"PROGRAM -t nat -D PREROUTING -m comment --comment 'kubernetes service portals' -j KUBE-SERVICES",
				"PROGRAM -t mangle -X KUBE-PROXY-CANARY",
				"PROGRAM -t filter -F KUBE-FORWARD",
				"PROGRAM -t nat -F; PROGRAM -t nat -X || true", // the repair may be faster
				"PROGRAM -t filter -F; PROGRAM -t filter -X || true",
			} {
				n.sh(strings.ReplaceAll(deletion, "PROGRAM", "iptables-"+variant+" -w 5"))
				testenv.Eventually(t, deletion+": healed", func() bool { return n.rules(variant) == want })
			}
		})
	}
}

// firstService is the chain of some Service port.
func firstService(rules string) string {
	for line := range strings.Lines(rules) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), ":KUBE-SVC-"); ok && len(strings.Fields(name)[0]) == 16 {
			return "KUBE-SVC-" + strings.Fields(name)[0]
		}
	}
	return ""
}

// TestKernelAudit_NoneAfterOwnWrites: the proxy's own writes cause no audit; neither do other programs' chains in the
// nft variant, where the kernel announces the changes.
func TestKernelAudit_NoneAfterOwnWrites(t *testing.T) {
	for _, variant := range testenv.Variants("nft", "legacy") {
		t.Run(variant, func(t *testing.T) {
			n := newNode(t)
			manifests := t.TempDir()
			write := func(endpoint int) {
				n.sh("sed 's/ENDPOINT/10.244.1." + string(rune('1'+endpoint)) + "/' > " + manifests + "/.new <<'.'\n" + oneService + ".\nmv " + manifests + "/.new " + manifests + "/web.yaml")
			}
			write(0)
			c := n.serve(variant, manifests)
			for seen := int64(-1); seen != c.audits.Load(); { // until what the start causes is over
				seen = c.audits.Load()
				time.Sleep(time.Second)
			}
			audits, writes := c.audits.Load(), c.writes.Load()
			for i := range 8 {
				applied := c.applied.Load()
				write(i % 3)
				testenv.Eventually(t, "applied", func() bool { return i == 0 || c.applied.Load() > applied })
				if variant == "nft" {
					n.sh("P='iptables-nft -t nat'; $P -N CNI; $P -I PREROUTING -j CNI; $P -A CNI -p udp -j RETURN; $P -D PREROUTING -j CNI; $P -F CNI; $P -X CNI")
				}
			}
			time.Sleep(time.Second)
			if done := c.writes.Load() - writes; done < 7 {
				t.Errorf("%d writes, want 7 at least", done)
			}
			if done := c.audits.Load() - audits; done != 0 {
				t.Errorf("%d audits, want none", done)
			}
			t.Logf("%d writes, %d audits", c.writes.Load()-writes, c.audits.Load()-audits)
		})
	}
}

const oneService = `apiVersion: v1
kind: Service
metadata: {namespace: demo, name: web}
spec:
  clusterIP: 172.30.0.41
  clusterIPs: [172.30.0.41]
  ipFamilies: [IPv4]
  ports: [{name: http, protocol: TCP, port: 80, targetPort: 8080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: demo, name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, protocol: TCP, port: 8080}]
endpoints:
- addresses: [ENDPOINT]
  nodeName: demo
  conditions: {ready: true}
`
