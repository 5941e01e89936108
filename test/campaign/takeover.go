// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/process"
)

// predecessor is what serves the node before the proxy takes it over: kube-proxy, or Sluice, in a
// mode.
type predecessor struct {
	mode      string
	kubeProxy bool
}

func (p predecessor) String() string {
	if p.kubeProxy {
		return "kube-proxy in mode " + p.mode
	}
	return "Sluice in mode " + p.mode
}

// predecessors are all that this kernel can run before a mode.
func predecessors(mode string) (all []predecessor) {
	for _, other := range []string{"nftables", "iptables", "userspace"} {
		if other != "userspace" {
			all = append(all, predecessor{other, true})
		}
		if other != mode {
			all = append(all, predecessor{other, false})
		}
	}
	return all
}

// takeover lets a predecessor serve the node, and then the proxy again, while the kernel rejects one
// Service. Another mode of Sluice begins and ends with a changed configuration, kube-proxy as a
// process. Start of kube-proxy is not judged: it deletes the rules it finds before it writes its own.
func takeover(ctx context.Context, r *trial, number int) error {
	all := predecessors(r.mode)
	from := all[number%len(all)]
	r.row.count("from " + from.String())
	r.row.note("%s from %v", time.Now().Format("15:04:05.000"), from)
	if !from.kubeProxy {
		if err := r.changeMode(ctx, from.mode); err != nil {
			return fmt.Errorf("to %v: %w", from, err)
		}
		if err := r.changeMode(ctx, r.mode); err != nil {
			return fmt.Errorf("from %v: %w", from, err)
		}
		return nil
	}
	if err := r.replaceByKubeProxy(ctx, from.mode); err != nil {
		return fmt.Errorf("to %v: %w", from, err)
	}
	if err := r.p.Process().Kill(); err != nil { // as it always ends: it does not handle SIGTERM
		return err
	}
	began, want := time.Now(), r.c.mark()
	if err := r.p.start(); err != nil {
		return err
	}
	if err := r.recovered(ctx, began, want, true); err != nil {
		return fmt.Errorf("from %v: %w", from, err)
	}
	return r.alone(ctx, r.mode)
}

// changeMode changes the mode of the running proxy, and waits until nothing of another mode remains.
func (r *trial) changeMode(ctx context.Context, mode string) error {
	// Connections through a forwarder of userspace mode end with it.
	over := func() {}
	if r.p.mode == "userspace" {
		over = r.t.breaks(func(_ target, e netnstest.Exchange) bool { return e.Session })
	}
	began := time.Now()
	r.p.mode = mode
	if err := r.p.configure(); err != nil {
		return err
	}
	if err := r.alone(ctx, mode); err != nil {
		return err
	}
	time.Sleep(talkPause) // each session has noticed
	over()
	return r.recovered(ctx, began, r.c.mark(), false)
}

// replaceByKubeProxy stops the proxy and waits until kube-proxy serves everything.
func (r *trial) replaceByKubeProxy(ctx context.Context, mode string) error {
	over := r.t.breaks(func(target, netnstest.Exchange) bool { return true })
	if err := r.p.end((*process.Daemon).Stop); err != nil {
		return err
	}
	if err := r.p.startKubeProxy(mode); err != nil {
		return err
	}
	want, began := r.c.mark(), time.Now()
	limited, cancel := context.WithTimeout(ctx, r.recovery)
	defer cancel()
	err := r.shown(limited, want)
	if err == nil {
		err = r.t.awaitAll(ctx, r.recovery)
	}
	if err == nil {
		err = r.alone(ctx, mode)
	}
	if err != nil {
		return fmt.Errorf("%w; the end of %s:\n%s", err, r.p.Process().LogFile(), r.p.Process().Tail(10))
	}
	time.Sleep(max(talkPause, time.Since(began)/2)) // each session has noticed
	over()
	return nil
}

// startKubeProxy starts the real kube-proxy on the node, in place of the proxy.
func (p *proxies) startKubeProxy(mode string) error {
	binary, err := filepath.Abs(p.kubeProxy)
	if err != nil {
		return err
	}
	named := p.file("kube-proxy") // the name by which it is known
	if err := os.Symlink(binary, named); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	p.Binary, p.Name = named, ""
	return p.Start("--hostname-override", nodeName, "--kubeconfig", p.file("kubeconfig"),
		"--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48", "--proxy-mode", mode, "--conntrack-max-per-core", "0", "--v", "2")
}

// remains are commands that print a text on a node for as long as a mode has rules there.
var remains = map[string]struct{ command, text string }{
	"nftables":  {"nft list tables", "kube-proxy"},
	"iptables":  {"iptables-nft-save; ip6tables-nft-save; iptables-legacy-save; ip6tables-legacy-save", "-A KUBE-SERVICES"},
	"userspace": {"ip route show table local proto 219; ip -6 route show table local proto 219", "local"},
}

// alone waits until the node has the rules of one mode, and those alone.
func (r *trial) alone(ctx context.Context, mode string) error {
	const interval = 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, r.recovery)
	defer cancel()
	for of, trace := range remains {
		for {
			printed, err := netnstest.Output(r.p.Namespace, exec.Command("sh", "-c", trace.command))
			if err != nil {
				return err
			}
			if strings.Contains(string(printed), trace.text) == (of == mode) {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("after %v the node should have rules of mode %s only; of mode %s there is:\n%.2000s",
					r.recovery, mode, of, printed)
			case <-time.After(interval):
			}
		}
	}
	return nil
}
