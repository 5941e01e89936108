// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/process"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// node is a node whose Services come from manifests, with a pod and a client next to it.
type node struct {
	*netnstest.Network
	manifests string
	process   *process.Daemon
}

var (
	pod      = netip.MustParseAddrPort("10.244.1.2:8080")
	external = netip.MustParseAddrPort("198.18.0.1:1") // of the large Service
)

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{manifests: t.TempDir(), Network: netnstest.Build(t, netnstest.NodePlan(netnstest.Server{Name: "pod", At: pod}))}
	n.write(t, "node", `apiVersion: v1
kind: Node
metadata: {name: demo}
spec: {podCIDRs: [10.244.1.0/24]}
status: {addresses: [{type: InternalIP, address: 203.0.113.1}]}
`)
	return n
}

// write replaces a manifest, as kubectl apply would.
func (n *node) write(t *testing.T, name, text string) {
	t.Helper()
	part := filepath.Join(n.manifests, "."+name)
	if err := os.WriteFile(part, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(part, filepath.Join(n.manifests, name+".yaml")); err != nil {
		t.Fatal(err)
	}
}

func shop(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 1, byte(i + 1)}), 80)
}

// addShop adds a Service of another tenant.
func (n *node) addShop(t *testing.T, i int) {
	n.write(t, fmt.Sprint("shop", i), manifestOf("shop", fmt.Sprint("s", i), shop(i).Addr().String(), "", []string{"{name: p1, port: 80}"}))
}

// addLarge adds or replaces the Service of the tenant: 800 external IPs and 250 ports are 24 KB.
func (n *node) addLarge(t *testing.T, addresses, ports int) {
	var ips, all []string
	for a, i := external.Addr(), 0; i < addresses; a, i = a.Next(), i+1 {
		ips = append(ips, a.String())
	}
	for i := range ports {
		all = append(all, fmt.Sprintf("{name: p%d, port: %d}", i+1, i+1))
	}
	n.write(t, "large", manifestOf("tenant", "large", "10.96.0.66", "  externalIPs: ["+strings.Join(ips, ", ")+"]\n", all))
}

func manifestOf(namespace, name, ip, more string, ports []string) string {
	var at []string
	for i := range ports {
		at = append(at, fmt.Sprintf("{name: p%d, port: %d}", i+1, pod.Port()))
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[2]s, namespace: %[1]s, creationTimestamp: "2026-05-01T00:00:00Z"}
spec:
  clusterIP: %[3]s
%[4]s  ports: [%[5]s]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[2]s-1, namespace: %[1]s, labels: {kubernetes.io/service-name: %[2]s}}
addressType: IPv4
ports: [%[6]s]
endpoints: [{addresses: [%[7]s], nodeName: demo, conditions: {ready: true}}]
`, namespace, name, ip, more, strings.Join(ports, ", "), strings.Join(at, ", "), pod.Addr())
}

// start starts the proxy.
func (n *node) start(t *testing.T, program string) {
	t.Helper()
	cmd := exec.Command(program, "run", "--manifests", n.manifests, "--proxy-mode", "userspace", "--hostname-override", "demo",
		"--logging-format", "json", "--sluice-state-dir", t.TempDir())
	process, err := process.StartDaemon(n.Hosts["node"], filepath.Join(t.TempDir(), "log"), cmd)
	if err != nil {
		t.Fatal(err)
	}
	n.process = process
	t.Cleanup(func() { _ = process.Kill() })
}

// asks reports whether a client is answered.
func (n *node) asks(t *testing.T, at netip.AddrPort, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	_, err := netnstest.Ask(ctx, n.Hosts["client"], "tcp", at)
	return err == nil
}

func (n *node) await(t *testing.T, at netip.AddrPort) {
	t.Helper()
	testenv.Eventually(t, at.String()+" answers", func() bool { return n.asks(t, at, time.Second) })
}

// awaitTooLarge waits until the log has named the Service so many times.
func (n *node) awaitTooLarge(t *testing.T, times int) {
	t.Helper()
	testenv.Eventually(t, "the log names the large Service", func() bool {
		log, err := os.ReadFile(n.process.LogFile())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(log), "Service object limit exceeded") == times
	})
}

// TestUserspace_LargeServiceHarmsNoOther: in userspace mode, a Service of 24 KB that asks for 200,000 frontends does
// not affect other Services, and its own first frontends are served. (Package proxy and the campaign FAULT=tenant test
// the other modes.)
func TestUserspace_LargeServiceHarmsNoOther(t *testing.T) {
	program := testenv.Program(t)
	n := newNode(t)
	n.addShop(t, 0)
	n.addLarge(t, 800, 250)
	n.start(t, program)
	n.await(t, shop(0))
	n.awaitTooLarge(t, 1)
	n.addLarge(t, 2, 2)
	n.await(t, external)
	n.addLarge(t, 800, 250)
	n.awaitTooLarge(t, 2)
	n.addShop(t, 1)
	n.await(t, shop(1))
	if !n.asks(t, external, 10*time.Second) {
		t.Error("the first external IP of the large Service is not served")
	}
	if err := n.process.Stop(); err != nil {
		t.Error(err)
	}
}
