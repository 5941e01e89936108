package e2e

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// One Service from its creation to its end, as seen by a client outside the cluster, a pod on the
// node and the node itself, over TCP and UDP, in both families, through the cluster IP and the node
// port.
func TestServiceLifecycle(t *testing.T) { inEachMode(t, testServiceLifecycle) }

func testServiceLifecycle(t *testing.T, mode harness.Mode) {
	c := harness.NewCluster(t)
	c.StartProxy(mode)
	everyone := []*harness.Host{c.X, c.P1, c.N1}

	web := c.CreateService("web", corev1.ServiceTypeNodePort)
	c.SetEndpoints("web", c.A, c.B)
	targets := append(clusterIPs(t, web), nodePorts(t, web, c.N1)...)
	reachAll(t, startMax, "a new service works", everyone, targets, c.A, c.B)

	c.SetEndpoints("web", c.A, c.B, c.C)
	reachAll(t, changeMax, "scaled up to three", everyone, targets, c.A, c.B, c.C)

	c.SetEndpoints("web", c.B)
	reachAll(t, changeMax, "scaled down to one", everyone, targets, c.B)

	c.SetEndpoints("web", c.C)
	reachAll(t, changeMax, "the one endpoint replaced", everyone, targets, c.C)

	c.SetEndpoints("web")
	unreachableAll(t, changeMax, "no endpoint left", everyone, targets)

	c.SetEndpoints("web", c.A)
	reachAll(t, changeMax, "an endpoint again", everyone, targets, c.A)

	c.DeleteService("web")
	unreachableAll(t, changeMax, "deleted", everyone, targets)
	if mode == harness.Userspace {
		tables, err := c.N1.Output(exec.Command("nft", "list", "tables"))
		if left := strings.NewReplacer("table ip sluice-guard\n", "", "table ip6 sluice-guard\n", "").Replace(string(tables)); err != nil || left != "" {
			t.Errorf("userspace mode has written tables: %s, %v", left, err)
		}
	}
}

// A pod that calls its own Service may be sent to itself, and must get the answer.
func TestPodReachesItselfThroughItsService(t *testing.T) {
	inEachMode(t, func(t *testing.T, mode harness.Mode) {
		c := harness.NewCluster(t)
		c.StartProxy(mode)
		self := c.CreateService("self", corev1.ServiceTypeClusterIP)
		c.SetEndpoints("self", c.A)
		reachAll(t, startMax, "the pod reached itself", []*harness.Host{c.A}, clusterIPs(t, self), c.A)
	})
}

// loopback are the addresses at which node ports answer the node itself. In iptables mode IPv6 has
// none, as with kube-proxy: the kernel has no route_localnet for it.
var loopback = map[harness.Mode][]netip.Addr{
	harness.IPTables: {netip.AddrFrom4([4]byte{127, 0, 0, 1})},
	harness.NFTables: {netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()},
	// As in nftables mode, without a setting.
	harness.Userspace: {netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()},
}

// A node port answers the node itself on localhost, and again after the proxy was killed and
// started anew, and no longer once the Service is gone.
func TestNodePortOnLocalhost(t *testing.T) { inEachMode(t, testNodePortOnLocalhost) }

func testNodePortOnLocalhost(t *testing.T, mode harness.Mode) {
	c := harness.NewCluster(t)
	var flags []string
	if mode == harness.NFTables {
		flags = []string{"--sluice-nftables-localhost-nodeports"} // off by default there
	}
	proxy := c.StartProxy(mode, flags...)
	node := []*harness.Host{c.N1}
	web := c.CreateService("web", corev1.ServiceTypeNodePort)
	c.SetEndpoints("web", c.A, c.B)
	targets, err := harness.NodePortsAt(web, loopback[mode]...)
	if err != nil {
		t.Fatal(err)
	}
	reachAll(t, startMax, "localhost answers", node, targets, c.A, c.B)

	if err := proxy.Kill(); err != nil {
		t.Fatal(err)
	}
	c.StartProxy(mode, flags...)
	reachAll(t, startMax, "localhost answers after a restart", node, targets, c.A, c.B)
	c.SetEndpoints("web", c.C)
	reachAll(t, changeMax, "the endpoints replaced", node, targets, c.C)
	c.DeleteService("web")
	unreachableAll(t, changeMax, "deleted", node, targets)
}
