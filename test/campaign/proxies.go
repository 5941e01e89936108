// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/process"
)

// The fields that change while a proxy runs. A change of profiling needs a hand-over inside the
// process, one of the period does not.
const configuration = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %[1]s
clientConnection: {kubeconfig: %[2]q}
hostnameOverride: %[3]s
clusterCIDR: "10.244.0.0/16,fd00:10:244::/48"
nodePortAddresses: ["0.0.0.0/0", "::/0"]
conntrack: {maxPerCore: 0}
enableProfiling: %[4]t
%[6]s: {syncPeriod: %[5]ds}
`

// proxies runs the proxy on the node, one process after the other. One goroutine uses it.
type proxies struct {
	*process.Program
	mode, variant string
	// offload switches the offload of established connections on.
	offload bool
	api     string
	builds  []build
	// kubeProxy is the program of the real kube-proxy.
	kubeProxy string

	// current is the build that runs.
	current int
	started time.Time
	// profiling and period are what the configuration file says.
	profiling bool
	period    int
	// spoiled counts the processes of builds with a rejected Service, quarantined those that logged
	// the rejection, handOvers the logged hand-overs.
	spoiled, quarantined, handOvers int
}

func (p *proxies) file(name string) string { return filepath.Join(p.Dir, name) }

// configure writes the configuration file.
func (p *proxies) configure() error {
	section := p.mode
	if section == "userspace" { // for which kube-proxy's document has none
		section = "nftables"
	}
	text := fmt.Sprintf(configuration, p.mode, p.file("kubeconfig"), nodeName, p.profiling, 30+p.period, section)
	text += fmt.Sprintf("---\napiVersion: sluice.dev/v1alpha1\nkind: SluiceConfiguration\nstate: {dir: %q}\n", p.file("state"))
	text += "balancing: {observeConnections: true}\n" // as releases before "all" have it
	if p.variant != "" {
		text += fmt.Sprintf("iptables: {variant: %s}\n", p.variant)
	}
	if p.offload {
		text += "nftables: {offload: tcp}\n"
	}
	// A new file replaces the old one, so a reader never sees half of it.
	if err := os.WriteFile(p.file("config.new"), []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(p.file("config.new"), p.file("config.yaml"))
}

func (p *proxies) start() error {
	if err := apitest.WriteKubeconfig(p.file("kubeconfig"), p.api); err != nil {
		return err
	}
	if err := p.configure(); err != nil {
		return err
	}
	p.started = time.Now()
	b := p.builds[p.current]
	p.Binary, p.Name = b.binary, "proxy-"+b.version
	return p.Start("proxy", "--config", p.file("config.yaml"))
}

// end ends the process and reads its log.
func (p *proxies) end(how func(*process.Daemon) error) error {
	// A process that cannot handle SIGTERM yet is killed by it.
	const deafMax = 30 * time.Second
	if err := how(p.Process()); err != nil && (p.Process().Running() || time.Since(p.started) > deafMax) {
		return err
	}
	log, err := os.ReadFile(p.Process().LogFile())
	if err != nil {
		return err
	}
	p.handOvers += bytes.Count(log, []byte("reloading configuration; rules remain"))
	if p.builds[p.current].rejects {
		p.spoiled++
		if bytes.Contains(log, []byte("Service quarantined")) {
			p.quarantined++
		}
	}
	return p.forgetLogs()
}

// forgetLogs removes all but the newest logs.
func (p *proxies) forgetLogs() error {
	const keep = 60
	if p.Starts() <= keep {
		return nil
	}
	old, err := filepath.Glob(p.file(fmt.Sprintf("proxy-*-%d.log", p.Starts()-keep)))
	for _, file := range old {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// act is something that happens to a proxy.
type act struct {
	name string
	do   func(*proxies) error
}

var upgraded = act{"upgraded", func(p *proxies) error { return p.again((*process.Daemon).Stop, 3-p.current) }}

// acts are performed in random order. After a process has ended, there is a pause of up to a
// second, or none.
var acts = []act{
	{"killed, started", func(p *proxies) error { return p.again((*process.Daemon).Kill, p.current) }},
	{"terminated, started", func(p *proxies) error { return p.again((*process.Daemon).Stop, p.current) }},
	upgraded,
	{"killed while it starts", func(p *proxies) error {
		if err := p.again((*process.Daemon).Kill, p.current); err != nil {
			return err
		}
		time.Sleep(time.Duration(rand.IntN(800)) * time.Millisecond)
		return p.again((*process.Daemon).Kill, p.current)
	}},
	{"reconfigured, by a hand-over", func(p *proxies) error { p.profiling = !p.profiling; return p.configure() }},
	{"reconfigured, in its pace", func(p *proxies) error { p.period = 1 - p.period; return p.configure() }},
	{"reconfigured and killed", func(p *proxies) error {
		p.profiling = !p.profiling
		if err := p.configure(); err != nil {
			return err
		}
		time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond)
		return p.again((*process.Daemon).Kill, p.current)
	}},
}

// again ends the process and starts a build.
func (p *proxies) again(how func(*process.Daemon) error, build int) error {
	if err := p.end(how); err != nil {
		return err
	}
	if rand.IntN(2) == 0 {
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
	}
	p.current = build
	return p.start()
}
