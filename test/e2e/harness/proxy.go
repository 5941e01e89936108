package harness

import (
	"fmt"
	"os/exec"
	"path/filepath"
)

// Proxy is one run of Sluice on node N1.
type Proxy struct {
	*Process
}

// StartProxy starts Sluice with the rights of kube-proxy. It returns once the process runs, not once it
// is ready: a test waits for what it wants to see. The process is killed at the end of the test, which
// fails if the log holds a race, a panic or a batch that the kernel refused. Further flags come after those given here, so they win.
func (c *Cluster) StartProxy(flags ...string) *Proxy {
	c.t.Helper()
	binary, err := sluiceBinary()
	if err != nil {
		c.t.Fatal(err)
	}
	c.proxies++
	log := filepath.Join(c.logs, fmt.Sprintf("sluice-%d.log", c.proxies))
	process, err := startProcess(c.N1.Namespace, log, exec.Command(binary, append([]string{
		"proxy",
		"--kubeconfig", c.Server.ProxyKubeconfig(),
		"--hostname-override", NodeName,
		"--cluster-cidr", PodCIDRs,
		"--proxy-mode", "iptables",
		"--log-format", "json",
		"--log-level", "debug", // batches are announced at this level
	}, flags...)...))
	if err != nil {
		c.t.Fatal(err)
	}
	p := &Proxy{process}
	c.t.Cleanup(func() {
		c.end(process)
		if log := c.Log(p); len(log.Defects) > 0 {
			c.t.Errorf("%s: %d defects, the first being %s", p.LogFile(), len(log.Defects), log.Defects[0])
		}
	})
	return p
}

// Log reads what the process has logged so far.
func (c *Cluster) Log(p *Proxy) ProxyLog {
	c.t.Helper()
	log, err := readProxyLog(p.LogFile())
	if err != nil {
		c.t.Fatal(err)
	}
	return log
}
