package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/process"
)

// proxy is one of the programs on the node, with its defaults.
type proxy struct {
	program   string
	binary    string
	flags     []string
	path      string // PATH of the process
	node      *netns.Namespace
	dir       string
	processes int
	process   *process.Daemon
}

// newProxy prepares a program. Both get the same flags.
func newProxy(o options, program string, n *network, api *apiServer, dir string) (*proxy, error) {
	p := &proxy{program: program, node: n.node, dir: dir, path: os.Getenv("PATH"), flags: []string{
		"--kubeconfig", api.credential("proxy"), "--hostname-override", nodeName, "--cluster-cidr", podRange.String(), "--proxy-mode", o.mode,
		// The conntrack table's size can be set in the machine's first network namespace only.
		"--conntrack-max-per-core", "0",
	}}
	if o.variant != "" {
		var err error
		if p.path, err = rig.IPTables(filepath.Join(dir, "path"), o.variant); err != nil {
			return nil, err
		}
	}
	if program == sluice {
		p.binary = o.binaries[program]
		p.flags = append([]string{"proxy"}, append(p.flags, "--sluice-state-dir", filepath.Join(dir, "state"))...)
		return p, nil
	}
	binary, err := filepath.Abs(o.binaries[program])
	if err != nil {
		return nil, err
	}
	p.binary = filepath.Join(dir, kubeProxy) // the name by which it is known
	return p, os.Symlink(binary, p.binary)
}

func (p *proxy) command(more ...string) *exec.Cmd {
	cmd := exec.Command(p.binary, append(p.flags[:len(p.flags):len(p.flags)], more...)...)
	cmd.Env = append(os.Environ(), "PATH="+p.path)
	return cmd
}

// start starts a process and returns when that was.
func (p *proxy) start() (time.Time, error) {
	p.processes++
	began := time.Now()
	var err error
	p.process, err = process.StartDaemon(p.node, filepath.Join(p.dir, fmt.Sprintf("%s-%d.log", p.program, p.processes)), p.command())
	return began, err
}

// stop ends the process. kube-proxy does not handle the signal.
func (p *proxy) stop() error {
	const limit = 30 * time.Second
	if err := p.alive(); err != nil {
		return err
	}
	if err := p.process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.process.Ended():
		return nil
	case <-time.After(limit):
		return errors.Join(fmt.Errorf("%s has not ended %v after SIGTERM", p.program, limit), p.kill())
	}
}

// kill ends the process and the programs that it runs.
func (p *proxy) kill() error {
	children := rig.WithChildren(p.process.PID())[1:]
	err := p.process.Kill()
	for _, child := range children {
		_ = syscall.Kill(child, syscall.SIGKILL) // it may have ended
	}
	return err
}

// alive returns an error when the process has ended by itself.
func (p *proxy) alive() error {
	if p.process.Running() {
		return nil
	}
	return fmt.Errorf("%s has ended by itself (%s):\n%s", p.program, p.process.End(), p.process.Tail(10))
}

// cleanUp removes the program's rules by its own command.
func (p *proxy) cleanUp(ctx context.Context) error {
	cmd := p.command("--cleanup")
	if err := p.node.Start(cmd); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	return cmd.Wait()
}
