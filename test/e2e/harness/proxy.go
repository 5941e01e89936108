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
// fails if the log holds a race, a panic or a batch that the kernel refused.
func (c *Cluster) StartProxy(mode Mode) *Proxy {
	c.t.Helper()
	binary, err := sluiceBinary()
	if err != nil {
		c.t.Fatal(err)
	}
	c.proxies++
	log := filepath.Join(c.logs, fmt.Sprintf("sluice-%d.log", c.proxies))
	process, err := startProcess(c.N1.Namespace, log, exec.Command(binary,
		"proxy",
		"--kubeconfig", c.Server.ProxyKubeconfig(),
		"--hostname-override", NodeName,
		"--cluster-cidr", PodCIDRs,
		"--proxy-mode", string(mode),
		// The size of the table can be set in the first network namespace of a machine only.
		"--conntrack-max-per-core", "0",
		"--log-format", "json",
		"--log-level", "debug", // batches are announced at this level
		// The kernel lets only the host's own network namespace change this.
		"--conntrack-max-per-core", "0",
	))
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

// Cleanup removes what a proxy left on node N1, with the command that people use.
func (c *Cluster) Cleanup() {
	c.t.Helper()
	binary, err := sluiceBinary()
	if err != nil {
		c.t.Fatal(err)
	}
	printed, err := c.N1.Output(exec.Command(binary, "cleanup"))
	if err != nil {
		c.t.Fatalf("sluice cleanup: %v", err)
	}
	c.t.Logf("sluice cleanup:\n%s", printed)
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
