package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
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
	named := filepath.Join(c.t.TempDir(), "kube-proxy") // the name by which it is known
	if err := os.Symlink(binary, named); err != nil {
		c.t.Fatal(err)
	}
	process, err := netns.StartDaemon(c.N1.Namespace, log, exec.Command(named,
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

// kubeProxyQuiet is how long kube-proxy says nothing when it is done. In mode ipvs it runs a program for each
// entry of a set, and logs each.
const kubeProxyQuiet = 3 * time.Second

// AwaitQuiet waits until kube-proxy is done with what it has begun: packets get through before that.
func (c *Cluster) AwaitQuiet(kubeProxy *netns.Daemon) {
	c.t.Helper()
	Eventually(c.t, time.Minute, "kube-proxy has written all", func(context.Context) error {
		info, err := os.Stat(kubeProxy.LogFile())
		if err != nil {
			return err
		}
		if silent := time.Since(info.ModTime()); silent < kubeProxyQuiet {
			return fmt.Errorf("it wrote to its log %v ago", silent)
		}
		return nil
	})
}
