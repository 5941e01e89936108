// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/test/harness/sandbox"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/process"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// Proxy is one run of Sluice on node N1.
type Proxy struct {
	*process.Daemon
}

// StartProxy starts Sluice with the rights of kube-proxy. It returns once the process runs, not
// once it is ready: a test waits for what it wants to see. The process is killed at the end of the
// test, which fails if the log holds a race, a panic or a batch that the kernel rejected.
func (c *Cluster) StartProxy(mode Mode, flags ...string) *Proxy {
	c.t.Helper()
	capabilities := []string{"NET_ADMIN"}
	if mode == Userspace { // to listen at the ports of Services
		capabilities = append(capabilities, "NET_BIND_SERVICE")
	}
	return c.StartProxyWithCapabilities(capabilities, mode, flags...)
}

func (c *Cluster) usualFlags(mode Mode, more []string) []string {
	return append(more,
		"--kubeconfig", c.Server.ProxyKubeconfig(),
		"--cluster-cidr", PodCIDRs,
		"--proxy-mode", string(mode),
		// The conntrack table's size can be set in the machine's first network namespace only.
		"--conntrack-max-per-core", "0",
		"--logging-format", "json",
		"-v", "4", // batches are announced at this level
	)
}

// StartProxyWithConfig starts Sluice as StartProxy does, the way kube-proxy's DaemonSet has it:
// everything but the name of the node comes from a configuration file, for example one with a
// [Cluster.Configuration]. It may have more capabilities than NET_ADMIN.
func (c *Cluster) StartProxyWithConfig(file string, capabilities ...string) *Proxy {
	c.t.Helper()
	return c.startProxyWith(append(capabilities, "NET_ADMIN"), "--config", file)
}

// StartProxyWithCapabilities starts Sluice as StartProxy does, with other capabilities than NET_ADMIN.
func (c *Cluster) StartProxyWithCapabilities(capabilities []string, mode Mode, flags ...string) *Proxy {
	c.t.Helper()
	return c.startProxyWith(capabilities, c.usualFlags(mode, flags)...)
}

func (c *Cluster) startProxyWith(capabilities []string, flags ...string) *Proxy {
	c.t.Helper()
	c.proxies++
	log := filepath.Join(c.logs, fmt.Sprintf("sluice-%d.log", c.proxies))
	words := append([]string{"proxy", "--hostname-override", NodeName, "--sluice-state-dir", c.state}, flags...)
	command, err := c.confined(testenv.Program(c.t), words, capabilities)
	if err != nil {
		c.t.Fatal(err)
	}
	process, err := process.StartDaemon(c.N1.Namespace, log, command)
	if err != nil {
		c.t.Fatal(err)
	}
	p := &Proxy{process}
	c.t.Cleanup(func() {
		end(c.t, process)
		if log := c.Log(p); len(log.Defects) > 0 {
			c.t.Errorf("%s: %d defects, the first being %s", p.LogFile(), len(log.Defects), log.Defects[0])
		}
	})
	return p
}

// proxyUser is the user that runs the proxy in these tests. It owns no files.
const proxyUser = 65532

// confined returns the command of a proxy with the least privileges: a separate user with
// these capabilities, no way to more, the system calls of a container, and a file system that is
// read-only but for the directory of its state. Mode ipvs and a user who is not root on the machine
// get the plain command.
func (c *Cluster) confined(binary string, words, capabilities []string) (*exec.Cmd, error) {
	dir := c.t.TempDir()
	// The directories of a test are closed to others.
	err := errors.Join(os.Chmod(filepath.Dir(dir), 0o711), os.Mkdir(c.state, 0o700))
	if err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if slices.Contains(Modes(), IPVS) || os.Chown(c.state, proxyUser, proxyUser) != nil {
		return exec.Command(binary, words...), nil
	}
	runtime, err := containerBinary()
	if err != nil {
		return nil, err
	}
	program, file := filepath.Join(dir, "sluice"), filepath.Join(dir, "spec.json")
	spec := sandbox.Spec{
		Root: "/", Args: append([]string{program}, words...), Env: os.Environ(),
		Mounts: []sandbox.Mount{{Source: binary, Target: program, ReadOnly: true}, {Source: c.state, Target: c.state}},
		User:   proxyUser, Capabilities: capabilities, NoNewPrivileges: true, Seccomp: true, ReadOnlyRoot: true,
	}
	err = errors.Join(os.WriteFile(program, nil, 0o755), spec.Write(file))
	return exec.Command(runtime, "--become", file), err
}

// lend gives a file to the proxy's user, and lets him into the directories of the test that lead to it.
func lend(file string) error {
	if os.Chown(file, proxyUser, proxyUser) != nil {
		return nil // the proxy runs as the user of the test
	}
	for dir := filepath.Dir(file); dir != filepath.Clean(os.TempDir()) && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o711); err != nil {
			return err
		}
	}
	return nil
}

// Cleanup removes what a proxy left on node N1, with one of the commands that people use:
// "cleanup", or "proxy --cleanup" as with kube-proxy.
func (c *Cluster) Cleanup(command ...string) {
	c.t.Helper()
	printed, err := netnstest.Output(c.N1, exec.Command(testenv.Program(c.t), append(command, "--sluice-state-dir", c.state)...))
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		c.t.Fatalf("sluice %s: %v: %s", strings.Join(command, " "), err, failed.Stderr)
	}
	if err != nil {
		c.t.Fatalf("sluice %s: %v", strings.Join(command, " "), err)
	}
	c.t.Logf("sluice %s:\n%s", strings.Join(command, " "), printed)
}

// CleanupRejected is Cleanup that has to fail with status 1. It returns the error text.
func (c *Cluster) CleanupRejected(command ...string) string {
	c.t.Helper()
	printed, err := netnstest.Output(c.N1, exec.Command(testenv.Program(c.t), append(command, "--sluice-state-dir", c.state)...))
	failed, ok := errors.AsType[*exec.ExitError](err)
	if !ok || failed.ExitCode() != 1 {
		c.t.Fatalf("sluice %s: %v, want status 1: %s", strings.Join(command, " "), err, printed)
	}
	return string(failed.Stderr)
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

// StartKubeProxy starts the real kube-proxy on node N1, of the release that the module of these
// tests names. It returns once the process runs, which is killed at the end of the test.
func (c *Cluster) StartKubeProxy(mode Mode) *process.Daemon {
	c.t.Helper()
	c.proxies++
	log := filepath.Join(c.logs, fmt.Sprintf("kube-proxy-%d.log", c.proxies))
	named := filepath.Join(c.t.TempDir(), "kube-proxy") // the name by which it is known
	if err := os.Symlink(kubeProxyProgram(c.t), named); err != nil {
		c.t.Fatal(err)
	}
	process, err := process.StartDaemon(c.N1.Namespace, log, exec.Command(named,
		"--hostname-override", NodeName,
		"--kubeconfig", c.Server.ProxyKubeconfig(),
		"--cluster-cidr", PodCIDRs,
		"--proxy-mode", string(mode),
		// The conntrack table's size can be set in the machine's first network namespace only.
		"--conntrack-max-per-core", "0",
		"--v", "4",
	))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { end(c.t, process) })
	return process
}

// kubeProxyQuiet is how long kube-proxy logs nothing when it is done. In mode ipvs, it runs a
// program for each entry of a set, and logs each.
const kubeProxyQuiet = 3 * time.Second

// AwaitQuiet waits until kube-proxy has written everything: packets get through before that.
func (c *Cluster) AwaitQuiet(kubeProxy *process.Daemon) {
	c.t.Helper()
	Eventually(c.t, "kube-proxy has written all", func(context.Context) error {
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

// Fleet runs a command of sluice fleet with all rights.
func (c *Cluster) Fleet(words ...string) (string, error) {
	c.t.Helper()
	return c.Administer(append([]string{"fleet"}, words...)...)
}

// Administer runs a command of sluice with all rights, as an administrator would from the host of the API server. It
// returns what the command prints.
func (c *Cluster) Administer(words ...string) (string, error) {
	c.t.Helper()
	command := exec.Command(testenv.Program(c.t), append(words, "--kubeconfig", c.Server.AdminKubeconfig())...)
	printed, err := netnstest.Output(c.API, command)
	return string(printed), err
}
