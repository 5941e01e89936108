// SPDX-License-Identifier: Apache-2.0

// Command lookups sends very many first packets to one Service that does not change, while the rules
// around it change as fast as the proxy writes them, and counts those that leave the node
// untranslated: none.
//
//	client ──── node ──── pod
//	             ├─ sluice proxy ──► kernel ◄── nft delete table
//	             └──── beyond: whatever is not translated
//
// The Service is of type LoadBalancer with externalTrafficPolicy Local and one endpoint, on the
// node. Each packet is a TCP SYN or a datagram, of either family, and begins a connection that
// conntrack does not know. Nothing answers. Meanwhile other Services come and go in waves, so that
// the kernel's hash tables grow and shrink; another program deletes the tables now and then; and
// the proxy is stopped and continued. What is sent between a deletion and its repair is not judged.
//
// With -reuse one client takes ports at random, as a host does, so that a connection may find what an
// earlier one from the same port has left in conntrack: one that began while a table was missing.
//
// With -damage the program does something else. Another program flushes all rules or deletes a table, so
// many times, while sockets of both families send to the Service every 5 ms. A policy engine holds
// the first packets of connections in a queue. No packet may leave the node untranslated 0.5 s after a
// repair, and each socket must be answered.
//
// It runs as root, in separate network namespaces:
//
//	make lookups DURATION=15m
//	make lookups DAMAGE=100 MODE=iptables
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/process"
)

type options struct {
	duration, wipe, halt time.Duration
	services, churn      int
	reuse                bool
	sluice, dir, mode    string
	damage               int
}

func main() {
	o := options{}
	flag.DurationVar(&o.duration, "duration", 15*time.Minute, "how long to go on")
	flag.DurationVar(&o.wipe, "wipe", 20*time.Second, "mean pause between two deletions of the tables; 0 for none")
	flag.DurationVar(&o.halt, "halt", 10*time.Second, "mean pause between two stops of the proxy; 0 for none")
	flag.IntVar(&o.services, "services", 500, "most other Services at a time")
	flag.IntVar(&o.churn, "churn", 300, "changes of other Services per second")
	flag.BoolVar(&o.reuse, "reuse", false, "take ports at random, as one client does")
	flag.IntVar(&o.damage, "damage", 0, "damage the rules so many times while sockets keep sending, and do nothing else")
	flag.StringVar(&o.mode, "mode", "nftables", "with -damage: nftables or iptables")
	flag.StringVar(&o.sluice, "sluice", os.Getenv("SLUICE_BINARY"), "the program; default: $SLUICE_BINARY; empty builds it")
	flag.Parse()
	if o.mode != "nftables" && o.mode != "iptables" {
		fmt.Fprintf(os.Stderr, "lookups: -mode %q: must be nftables or iptables\n", o.mode)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "lookups:", err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context) (err error) {
	if o.dir, err = os.MkdirTemp("", "lookups-"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			fmt.Println("the log is in", o.dir)
			return
		}
		err = os.RemoveAll(o.dir)
	}()
	if o.sluice == "" {
		o.sluice = o.dir + "/sluice"
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", o.sluice, "./cmd/sluice").CombinedOutput(); err != nil {
			return fmt.Errorf("build: %w: %s", err, out)
		}
	}
	net, err := newNetwork(o.reuse)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, net.close()) }()
	c, err := newCluster(net.node, o.services)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.api.Stop()) }()
	proxy, err := o.startProxy(net.node, c.api.Address())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, proxy.Kill()) }()
	w := newWindows(proxy.LogFile())
	if o.damage > 0 {
		return o.harm(ctx, net, proxy, w)
	}
	p, err := newProber(net, w)
	if err != nil {
		return err
	}
	if err := p.await(ctx, 2*time.Minute); err != nil {
		return fmt.Errorf("%w\n%s", err, proxy.Tail(5))
	}
	p.reuse = o.reuse
	return o.play(ctx, net, c, proxy, w, p)
}

const configuration = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
clientConnection: {kubeconfig: %q}
hostnameOverride: node
clusterCIDR: "10.244.0.0/16,fd00:10:244::/48"
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

func (o *options) startProxy(node *netns.Namespace, api string) (*process.Daemon, error) {
	config, access := o.dir+"/config.yaml", o.dir+"/kubeconfig"
	text := fmt.Sprintf(configuration, o.mode, access) +
		fmt.Sprintf("---\napiVersion: sluice.dev/v1alpha1\nkind: SluiceConfiguration\nstate: {dir: %q}\n", o.dir+"/state")
	if o.mode == "iptables" {
		text += "iptables: {variant: nft}\n"
	}
	err := errors.Join(os.WriteFile(config, []byte(text), 0o600),
		apitest.WriteKubeconfig(access, api))
	if err != nil {
		return nil, err
	}
	return process.StartDaemon(node, o.dir+"/proxy.log", exec.Command(o.sluice, "proxy", "--config", config))
}

// play does everything concurrently until the time is up.
func (o *options) play(ctx context.Context, net *network, c *cluster, proxy *process.Daemon, w *windows, p *prober) error {
	before, err := net.arrived()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.duration)
	defer cancel()
	var wipes, halts, changes atomic.Int64
	failed := make(chan error, 4)
	do := func(mean time.Duration, count *atomic.Int64, what func() error) {
		for ctx.Err() == nil && mean > 0 {
			sleep(ctx, mean/2+rand.N(mean))
			if ctx.Err() != nil {
				return
			}
			if err := what(); err != nil {
				failed <- err
				return
			}
			count.Add(1)
		}
	}
	go do(o.wipe, &wipes, func() error { return w.wipe(net.node) })
	go do(o.halt, &halts, func() error {
		err := proxy.Signal(syscall.SIGSTOP)
		sleep(ctx, 200*time.Millisecond+rand.N(2*time.Second))
		w.continued()
		return errors.Join(err, proxy.Signal(syscall.SIGCONT))
	})
	go do(time.Second/time.Duration(o.churn), &changes, func() error { c.change(); return nil })
	sent := make(chan error, 1)
	go func() { sent <- p.send(ctx) }()
	lines := time.NewTicker(10 * time.Second)
	defer lines.Stop()
	began := time.Now()
	for {
		select {
		case err := <-failed:
			return err
		case err := <-sent:
			if err != nil {
				return err
			}
			sleep(context.Background(), time.Second)
			p.judge(w)
			return o.report(net, before, w, p, wipes.Load(), halts.Load(), changes.Load())
		case <-lines.C:
			p.judge(w)
			if !proxy.Running() {
				return fmt.Errorf("the proxy has ended\n%s", proxy.Tail(5))
			}
			fmt.Printf("%8v  %d first packets, %d judged untranslated, %d not judged; %d changes, %d deletions, %d stops\n",
				time.Since(began).Round(time.Second), p.total(), p.found, p.excused, changes.Load(), wipes.Load(), halts.Load())
		}
	}
}

// sleep waits, but not beyond the context.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (o *options) report(net *network, before uint64, w *windows, p *prober, wipes, halts, changes int64) error {
	arrived, err := net.arrived()
	if err != nil {
		return err
	}
	const row = "%-44s %12v\n"
	fmt.Println()
	for _, family := range service.Families {
		for protocol := range protocols {
			fmt.Printf(row, fmt.Sprintf("first packets, %v, %s", family, protocols[protocol].name), p.sent[family][protocol].Load())
		}
	}
	fmt.Printf(row, "first packets in all", p.total())
	fmt.Printf(row, "arrived at the pod (and some of its link)", arrived-before)
	fmt.Printf(row, "untranslated while tables were missing", p.excused)
	if o.reuse {
		fmt.Printf(row, fmt.Sprintf("untranslated within %v after a repair", cleaned), p.late)
		fmt.Printf(row, "longest after a repair", p.longest.Round(time.Millisecond))
	}
	fmt.Printf(row, "untranslated otherwise", p.found)
	fmt.Printf(row, "changes of other Services", changes)
	fmt.Printf(row, "deletions of both tables", wipes)
	fmt.Printf(row, "time without tables", w.missing().Round(time.Millisecond))
	fmt.Printf(row, "stops of the proxy", halts)
	fmt.Println(strings.Join(p.samples, "\n"))
	if p.found > 0 {
		return errors.New("packets left the node untranslated")
	}
	return nil
}
