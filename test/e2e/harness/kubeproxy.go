package harness

import (
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/sluice-proxy/sluice/internal/netns"
)

// StartKubeProxy starts the real kube-proxy on node N1, of the release that the module of these tests names.
// It returns once the process runs, which is killed at the end of the test.
func (c *Cluster) StartKubeProxy(mode Mode) *netns.Daemon {
	c.t.Helper()
	binary, err := kubeProxyBinary()
	if err != nil {
		c.t.Fatal(err)
	}
	c.proxies++
	log := filepath.Join(c.logs, fmt.Sprintf("kube-proxy-%d.log", c.proxies))
	process, err := netns.StartDaemon(c.N1.Namespace, log, exec.Command(binary,
		"--hostname-override", NodeName,
		"--kubeconfig", c.Server.ProxyKubeconfig(),
		"--cluster-cidr", PodCIDRs,
		"--proxy-mode", string(mode),
		// The size of the table can be set in the first network namespace of a machine only.
		"--conntrack-max-per-core", "0",
		"--v", "4",
	))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { c.end(process) })
	return process
}
