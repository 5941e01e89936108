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

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/process"
)

// The backends: a mode of both proxies, and for iptables the variant of its programs.
const (
	nftables       = "nftables"
	iptablesNFT    = "iptables-nft"
	iptablesLegacy = "iptables-legacy"
)

// The variants that are not builds of Sluice.
const (
	kubeProxy = "kube-proxy"
	floor     = "floor" // connection tracking and NAT: one masquerade rule that never applies
	none      = "none"  // no rules
)

// variant is who makes the rules.
type variant struct {
	name string
	// program is the proxy, or empty. words are more flags for it.
	program, words string
}

func (v variant) isProxy() bool { return v.program != "" }

func (v variant) isSluice() bool { return v.isProxy() && !strings.HasPrefix(v.name, kubeProxy) }

// flags are those of both proxies. Neither may change a kernel setting that the other leaves.
func (v variant) flags(backend, api, dir string) ([]string, error) {
	mode, programs, _ := strings.Cut(backend, "-")
	all := []string{
		"--master", "http://" + api, "--hostname-override", nodeName, "--proxy-mode", mode, "--cluster-cidr", clusterCIDR,
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
		"--iptables-localhost-nodeports=false",
	}
	if !v.isSluice() {
		return all, nil
	}
	all = append([]string{"proxy"}, append(all, "--sluice-state-dir", filepath.Join(dir, "state-"+v.name))...)
	if programs == "" {
		return append(all, strings.Fields(v.words)...), nil
	}
	file := filepath.Join(dir, "sluice-"+v.name+".conf")
	text := "apiVersion: sluice.dev/v1alpha1\nkind: SluiceConfiguration\niptables: {variant: " + programs + "}\n"
	return append(append(all, "--config", file), strings.Fields(v.words)...), os.WriteFile(file, []byte(text), 0o600)
}

// install puts the rules of a variant into a room, for good: a proxy has ended afterwards.
func (v variant) install(ctx context.Context, r *room, backend string, c cluster, dir string) error {
	switch {
	case v.isProxy():
		return v.runProxy(ctx, r, backend, c, dir)
	case v.name == floor:
		return r.masquerade(backend)
	default:
		return nil
	}
}

// masquerade adds a rule that never applies, since no packet has that source.
func (r *room) masquerade(backend string) error {
	commands := []string{
		"iptables -t nat -A POSTROUTING -s 192.0.2.77 -j MASQUERADE",
		"ip6tables -t nat -A POSTROUTING -s 2001:db8::77 -j MASQUERADE",
	}
	if backend == nftables {
		commands = nil
		for _, rule := range []string{"ip saddr 192.0.2.77", "ip6 saddr 2001:db8::77"} {
			family, _, _ := strings.Cut(rule, " ")
			commands = append(commands, "nft add table "+family+" floor",
				"nft add chain "+family+" floor postrouting { type nat hook postrouting priority srcnat; }",
				"nft add rule "+family+" floor postrouting "+rule+" masquerade")
		}
	}
	for _, command := range commands {
		words := strings.Fields(command)
		if backend != nftables {
			words[0] = strings.Replace(words[0], "tables", "tables-"+strings.TrimPrefix(backend, "iptables-"), 1)
		}
		if printed, err := netnstest.Output(r.node, exec.Command(words[0], words[1:]...)); err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, printed)
		}
	}
	return nil
}

// runProxy runs a proxy until everything is applied, and ends it.
func (v variant) runProxy(ctx context.Context, r *room, backend string, c cluster, dir string) (err error) {
	api, err := apitest.New(r.node.Listen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, api.Stop()) }()
	c.fill(api)
	proxy := process.Program{Namespace: r.node, Binary: v.program, Dir: dir, Name: v.name}
	if _, variant, iptables := strings.Cut(backend, "-"); iptables {
		path, err := rig.IPTables(filepath.Join(dir, "programs"), variant)
		if err != nil {
			return err
		}
		proxy.Environment = []string{"PATH=" + path}
	}
	flags, err := v.flags(backend, api.Address(), dir)
	if err == nil {
		err = proxy.Start(flags...)
	}
	if err != nil {
		return err
	}
	err = v.awaitApplied(ctx, r, c, proxy.Process())
	// kube-proxy leaves its rules however it ends, and does not handle SIGTERM.
	return errors.Join(err, proxy.Kill())
}

// awaitApplied returns when every address of the cluster has answered to the client, the proxy says
// that it is healthy, and kube-proxy has had the time for another sync.
func (v variant) awaitApplied(ctx context.Context, r *room, c cluster, process *process.Daemon) error {
	for _, f := range c.families {
		for _, t := range c.everything(f) {
			err := rig.Await(ctx, process, func() error {
				return r.client.Do(func() error { return r.servers[f].ready(t) })
			})
			if err != nil {
				return err
			}
		}
	}
	err := rig.Await(ctx, process, func() error {
		_, err := rig.Get(ctx, r.node, "http://127.0.0.1:10256/healthz")
		return err
	})
	if !v.isSluice() {
		const tidy = 2 * time.Second // kube-proxy syncs once per second
		rig.Sleep(ctx, tidy)
	}
	return errors.Join(err, netnstest.FlushConntrack(r.node))
}

// ready reports why a target is not ready yet.
func (s server) ready(t target) error {
	if err := s.drain(); err != nil {
		return err
	}
	_, err := t.visit(s)
	return err
}

// writeRules writes the rules of a room to a file, as the backend's own program prints them.
func (r *room) writeRules(backend, file string) error {
	commands := []string{"nft list ruleset"}
	if programs, is := strings.CutPrefix(backend, "iptables-"); is {
		commands = []string{"iptables-" + programs + "-save", "ip6tables-" + programs + "-save"}
	}
	var text []byte
	for _, command := range commands {
		words := strings.Fields(command)
		printed, err := netnstest.Output(r.node, exec.Command(words[0], words[1:]...))
		if err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		text = append(text, printed...)
	}
	return os.WriteFile(file, text, 0o644)
}
