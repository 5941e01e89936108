// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/process"
)

// proxy is one of the programs on the node, with its defaults.
type proxy struct {
	*process.Program
	flags []string
}

// newProxy prepares a program. Both get the same flags.
func newProxy(o options, program string, n *network, api *apiServer, dir string) (*proxy, error) {
	p := &proxy{Program: &process.Program{Namespace: n.node, Dir: dir, Name: program}, flags: []string{
		"--kubeconfig", api.ProxyKubeconfig(), "--hostname-override", nodeName, "--cluster-cidr", podRange.String(), "--proxy-mode", o.mode,
		// The conntrack table's size can be set in the machine's first network namespace only.
		"--conntrack-max-per-core", "0",
	}}
	if o.variant != "" {
		path, err := rig.IPTables(filepath.Join(dir, "path"), o.variant)
		if err != nil {
			return nil, err
		}
		p.Environment = []string{"PATH=" + path}
	}
	if program == sluice {
		p.Binary = o.binaries[program]
		p.flags = append([]string{"proxy"}, append(p.flags, "--sluice-state-dir", filepath.Join(dir, "state"))...)
		return p, nil
	}
	binary, err := filepath.Abs(o.binaries[program])
	if err != nil {
		return nil, err
	}
	p.Binary = filepath.Join(dir, kubeProxy) // the name by which it is known
	return p, os.Symlink(binary, p.Binary)
}

// start starts a process and returns when that was.
func (p *proxy) start() (time.Time, error) {
	began := time.Now()
	return began, p.Start(p.flags...)
}

// stop ends the process. kube-proxy does not handle the signal.
func (p *proxy) stop() error {
	const limit = 30 * time.Second
	if err := p.Alive(); err != nil {
		return err
	}
	if err := p.Process().Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.Process().Ended():
		return nil
	case <-time.After(limit):
		return errors.Join(fmt.Errorf("%s has not ended %v after SIGTERM", p.Name, limit), p.kill())
	}
}

// kill ends the process and the programs that it runs.
func (p *proxy) kill() error {
	children := rig.WithChildren(p.Process().PID())[1:]
	err := p.Process().Kill()
	for _, child := range children {
		_ = syscall.Kill(child, syscall.SIGKILL) // it may have ended
	}
	return err
}

// cleanUp removes the program's rules by its own command.
func (p *proxy) cleanUp(ctx context.Context) error {
	cmd := p.Command(append(slices.Clip(p.flags), "--cleanup")...)
	if err := netnstest.Start(p.Namespace, cmd); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	return cmd.Wait()
}
