// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/harness"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// thinks is how long pods think about a question over UDP while the mode changes, so that many
// questions are under way at each moment: longer than a former forwarder serves in any case.
const thinks = 1200 * time.Millisecond

// A process changes from each mode to userspace mode and back without losing a new connection. No datagram of a new
// client is lost, and on the way there no open connection, except from IPVS mode. Clients that keep their UDP socket
// reach the current endpoint afterwards.
func TestUserspace_ThereAndBack(t *testing.T) {
	for _, v := range append(slices.Clone(variants), variant{string(harness.IPVS), ""}) {
		if !slices.Contains(harness.Modes(harness.IPTables, harness.NFTables), harness.Mode(v.mode)) {
			continue
		}
		t.Run(v.String(), func(t *testing.T) {
			if v.programs == "legacy" {
				lockOfNode(t)
			} else {
				t.Parallel()
			}
			testUserspaceAndBack(t, v)
		})
	}
}

func testUserspaceAndBack(t *testing.T, other variant) {
	c := harness.NewCluster(t)
	path := filepath.Join(t.TempDir(), "config.yaml")
	set := func(mode harness.Mode) {
		t.Helper()
		// One client asks hundreds of questions at a time, each of which takes more than a second.
		text := c.Configuration(mode, clusterCIDR) + "userspace: {connectionsPerClient: 5000}\n"
		if other.programs != "" {
			text += "iptables: {variant: " + other.programs + "}\n"
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mode := harness.Mode(other.mode)
	set(mode)
	c.StartProxyWithConfig(path, "NET_RAW", "DAC_READ_SEARCH", "NET_BIND_SERVICE")
	clients := []*harness.Host{c.X, c.P1, c.N1}
	for _, client := range []*harness.Host{c.X, c.P1} { // they use ports again after seconds
		if err := client.Sysctl("net.ipv4.ip_local_port_range", "40000 42999"); err != nil {
			t.Fatal(err)
		}
	}
	web := c.CreateService("web", corev1.ServiceTypeNodePort)
	dns := c.CreateService("dns", corev1.ServiceTypeNodePort)
	c.SetEndpoints("web", c.A, c.B)
	c.SetEndpoints("dns", c.A)
	targets := append(clusterIPs(t, web), nodePorts(t, web, c.N1)...)
	reachAll(t, "the service works", clients, targets, c.A, c.B)
	// A process of the node keeps its route over IPv6, as docs/adr/0038-userspace.md says.
	flows := openFlows(t, []*harness.Host{c.X, c.P1}, append(clusterIPs(t, dns), nodePorts(t, dns, c.N1)...))
	pod, start, think := c.A, harness.StartTraffic, thinks // pod is the endpoint of dns
	if mode == harness.IPVS {
		// The kernel forgets open connections and questions under way with their virtual server.
		start, think = harness.StartNewTraffic, 0
	}
	change := func(to harness.Mode, traffic *harness.Traffic, next *harness.Host, others ...*harness.Host) {
		t.Helper()
		flows.await(t, "clients keep UDP sockets", pod)
		c.Think(think)
		set(to)
		awaitMode(t, c, harness.MetricsAddress, to)
		awaitOneMode(t, c.N1, to)
		time.Sleep(thinks)
		c.Think(0)
		pod = next
		c.SetEndpoints("dns", pod)
		flows.await(t, "UDP sockets that are kept have the next endpoint", pod)
		stopTraffic(t, traffic)
		c.SetEndpoints("web", others...)
		reachAll(t, "the endpoints changed", clients, targets, others...)
	}
	change(harness.Userspace, startTrafficBy(t, c, targets, start), c.B, c.A, c.B, c.C)
	think = thinks
	change(mode, startTrafficBy(t, c, targets, harness.StartNewTraffic), c.C, c.A, c.B)
}

// traces are commands that print something on a node that a mode has served, and what that is.
var traces = map[harness.Mode][][]string{
	harness.NFTables:  {{"nft", "list", "tables"}, {"kube-proxy"}},
	harness.IPTables:  {{"sh", "-c", "iptables-nft-save; ip6tables-nft-save; iptables-legacy-save; ip6tables-legacy-save"}, {"KUBE-SERVICES"}},
	harness.IPVS:      {{"ip", "link"}, {"kube-ipvs0"}},
	harness.Userspace: {{"sh", "-c", "ip route show table local proto 219; ip -6 route show table local proto 219"}, {"local"}},
}

// awaitOneMode waits until nothing is left of any mode but one.
func awaitOneMode(t *testing.T, node *harness.Host, only harness.Mode) {
	t.Helper()
	harness.Eventually(t, "nothing is left of another mode", func(context.Context) error {
		for mode, trace := range traces {
			if mode == harness.IPTables && only == harness.IPVS {
				continue // which has rules of these names, too
			}
			out, err := netnstest.Output(node, exec.Command(trace[0][0], trace[0][1:]...))
			if err != nil {
				return err
			}
			if found := strings.Contains(string(out), trace[1][0]); found != (mode == only) {
				return errors.New("of mode " + string(mode) + " there is:\n" + string(out))
			}
		}
		return nil
	})
}
