// SPDX-License-Identifier: Apache-2.0

// Command campaign kills, restarts, upgrades and reconfigures proxies for as long as it is told,
// next to one Service that the real kernel rejects the whole time, and counts what that costs the
// other Services: nothing.
//
//	client ──── node ──── pods
//	              ├─ sluice proxy ──► kernel
//	              └─ API server (test/apitest)
//
// The proxies are processes of the real program. Three builds of it take turns: the unchanged one,
// with which the campaign begins and which serves every Service, and two of different versions
// whose renderer adds to one Service what no kernel accepts (see builds.go). A few Services change
// their endpoints all the time, among pods that all answer, so every process has something to
// write. Half of the Services have annotations of balancing, drain deadlines and refusals.
//
// A client makes new TCP connections and asks UDP questions at a steady rate, at ClusterIPs and
// node ports in both families, and holds long-lived sessions. Every exchange that does not succeed
// is lost; the exit status is 1 if any is, and if those of one Service alone are late by seconds. Exchanges with the rejected Service itself are counted
// apart.
//
// With -former, none is rejected, and one of the two builds that take turns is that of another commit.
//
// With -fault, something goes wrong around the proxy instead, so many times: it is killed at
// instants that fall into all that it does, stopped while a rival removes its rules, short of disk,
// descriptors, memory or the lock of the iptables programs, and takes the node over from kube-proxy
// and from other modes (see faults). Half of the live
// Services stay as they are, endpoints of the others change 50 times a second. The table says what
// was lost and how long a change took at most to be applied afterwards.
//
// It runs as root in network namespaces and with separate mounts:
//
//	make campaign DURATION=1h MODE=iptables VARIANT=legacy
//	make campaign FAULT=kill INSTANTS=300 MODE=iptables VARIANT=legacy
//	make campaign FORMER=v1.2.3 DURATION=5m MODE=nftables
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/process"
)

// options are the flags.
type options struct {
	duration, every, change time.Duration
	mode, variant           string
	services, live, rate    int
	dir                     string
	control, offload        bool
	fault                   string
	instants                int
	longest, hold, patience time.Duration
	recovery                time.Duration
	builds, kubeProxy       string
	former                  string
	prepare                 bool
}

// errLost is the finding of a campaign. Any other error is a failure of the campaign itself.
var errLost = errors.New("connections to Services other than the rejected one were lost")

// errAlone is one, too: TCP sent again what was lost meanwhile.
var errAlone = errors.New("single Services were out of reach for seconds, and others were not")

func main() {
	o := options{}
	flag.DurationVar(&o.duration, "duration", time.Hour, "how long to go on")
	flag.DurationVar(&o.every, "every", 5*time.Second, "mean pause between two things that happen to the proxy")
	flag.DurationVar(&o.change, "change", 500*time.Millisecond, "pause between two changes of endpoints")
	flag.StringVar(&o.mode, "mode", "nftables", "kernel backend: nftables or iptables")
	flag.StringVar(&o.variant, "variant", "", "iptables programs: nft or legacy; empty lets the proxy choose")
	flag.IntVar(&o.services, "services", 200, "number of Services")
	flag.IntVar(&o.live, "live", 30, "how many of them have pods that answer")
	flag.IntVar(&o.rate, "rate", 200, "new connections and questions per second")
	flag.StringVar(&o.dir, "dir", "", "folder for builds and logs; empty makes one and leaves it when something is lost")
	flag.BoolVar(&o.control, "control", false, "reject nothing: what is lost then is not the rejected Service's doing")
	flag.BoolVar(&o.offload, "offload", false, "offload established TCP connections, in mode nftables, on a kernel with flowtables")
	flag.StringVar(&o.fault, "fault", "", "what goes wrong instead: all, or some of kill, stop, disk, descriptors, memory, lock, takeover, tenant, astray and (with -offload) offload, with commas")
	flag.IntVar(&o.instants, "instants", 300, "how many times each fault happens")
	flag.DurationVar(&o.longest, "longest", 30*time.Minute, "longest time for each fault, however many instants are left")
	flag.DurationVar(&o.hold, "hold", time.Minute, "how long a lock is held, and at most 20 s of it the longest time a proxy is stopped")
	flag.DurationVar(&o.patience, "patience", 30*time.Second, "how long an exchange may take")
	flag.DurationVar(&o.recovery, "recovery", 2*time.Minute, "how long the recovery from a fault may take")
	flag.StringVar(&o.builds, "builds", "", "folder with builds that -prepare has made; empty makes them anew")
	flag.StringVar(&o.kubeProxy, "kube-proxy", "bin/e2e-kubeproxy", "the real kube-proxy, for takeovers")
	flag.StringVar(&o.former, "former", "", "a commit whose build takes turns with this one: upgrades and roll-backs; rejects nothing")
	flag.BoolVar(&o.prepare, "prepare", false, "make the builds in the folder of -builds, and end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.fault != "" && !isPrivate() {
		os.Exit(inPrivate(ctx))
	}
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "campaign:", err)
		os.Exit(1)
	}
}

func (o *options) check() error {
	switch {
	case o.mode != "nftables" && o.mode != "iptables" && (o.mode != "ipvs" || o.fault == "" && o.former == ""):
		return fmt.Errorf("-mode %q: want nftables or iptables; ipvs with -fault or -former only", o.mode)
	case o.offload && o.mode != "nftables":
		return fmt.Errorf("-offload: must be with -mode nftables, not %s", o.mode)
	case o.fault != "" && o.live < 2*special+2:
		return fmt.Errorf("-live %d: must be at least %d with -fault", o.live, 2*special+2)
	case o.prepare && o.builds == "":
		return errors.New("-prepare: want -builds")
	case o.fault != "" && o.services == o.live:
		return errors.New("-services must be above -live with -fault")
	case o.variant != "" && o.variant != "nft" && o.variant != "legacy":
		return fmt.Errorf("-variant %q: want nft or legacy", o.variant)
	case o.live < 2 || o.services < o.live || o.rate < 1 || o.every <= 0 || o.change <= 0:
		return errors.New("want -live of 2 or more, -services no less than that, and a -rate, -every and -change above 0")
	}
	return nil
}

func (o *options) run(ctx context.Context) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	source, err := os.Getwd()
	if err != nil {
		return err
	}
	if o.dir != "" {
		if err := os.MkdirAll(o.dir, 0o700); err != nil {
			return err
		}
	} else {
		if o.dir, err = os.MkdirTemp("", "campaign-"); err != nil {
			return err
		}
		defer func() {
			if err == nil {
				err = os.RemoveAll(o.dir)
			} else {
				fmt.Println("logs are in", o.dir)
			}
		}()
	}
	if o.builds != "" { // compiled from another directory
		if o.builds, err = filepath.Abs(o.builds); err != nil {
			return err
		}
	}
	o.control = o.control || o.former != ""
	all := builds(!o.control)
	if o.former != "" {
		all[1].version = "campaign-" + o.former
	}
	for i := range all {
		if all[i].place(o.builds); o.builds != "" && !o.prepare {
			continue
		}
		of := source
		if o.former != "" && i == 1 {
			if of, err = checkOut(ctx, source, o.former, cmp.Or(o.builds, o.dir)); err != nil {
				return err
			}
		}
		if err := all[i].compile(ctx, of, cmp.Or(o.builds, o.dir)); err != nil {
			return err
		}
	}
	if o.prepare {
		return nil
	}
	if o.fault != "" {
		if err := o.mountState(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, o.unmountState()) }()
	}
	net, err := newNetwork(o.live)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, net.Close()) }()
	api, err := apitest.New(net.node.Listen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, api.Stop()) }()
	c := &cluster{api: api, services: o.services, live: o.live, faulty: o.fault != ""}
	c.fill()
	p := &proxies{Program: &process.Program{Namespace: net.node, Dir: o.dir}, mode: o.mode, variant: o.variant, offload: o.offload,
		api: api.Address(), builds: all, kubeProxy: o.kubeProxy}
	t := newTraffic(net.client, c.targets(), o.patience)
	if c.faulty {
		p.Environment = []string{"XTABLES_LOCKFILE=" + o.lockFile()}
		flows := c.roles().flows
		t.spares = func(t target) bool { return t.service == rejectedNumber || t.service == flows && t.protocol == "udp" }
	}
	return o.campaign(ctx, net, c, p, t)
}

// campaign begins with the build that serves every Service, and then lets the others take turns.
func (o *options) campaign(ctx context.Context, net *network, c *cluster, p *proxies, t *traffic) (err error) {
	if err := p.start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := t.awaitAll(ctx, time.Minute+o.recovery); err != nil {
		return errors.Join(err, p.Alive())
	}
	fmt.Printf("%d Services, %d frontends answer\n", o.services, len(t.targets))
	t.after("started, nothing else yet")
	load, err := t.start(ctx, o.rate)
	if err != nil {
		return err
	}
	var tables func()
	if o.fault == "" {
		var times map[string]int
		times, err = o.play(ctx, c, p, t)
		tables = func() { report(p, t, times) }
	} else {
		r := &trial{options: o, net: net, c: c, p: p, t: t}
		tables = r.table
		var kinds []fault
		if kinds, err = faultsNamed(o.fault, o.mode, o.offload); err == nil {
			err = errors.Join(r.play(ctx, kinds), errors.Join(r.failed...))
		}
	}
	load.Stop()
	tables()
	if err != nil {
		return err
	}
	if err := p.end((*process.Daemon).Stop); err != nil {
		return err
	}
	_, judged := t.snapshot()
	alone := t.slow.Alone() // no traffic any more
	for _, what := range alone {
		fmt.Println("service", what)
	}
	switch {
	case o.fault == "" && p.quarantined == 0 && !o.control:
		return errors.New("the kernel has rejected nothing: that proves nothing")
	case judged.lost > 0:
		return errLost
	case len(alone) > 0:
		return errAlone
	}
	return nil
}

// play performs acts until the time is up, and returns how many times it performed each.
func (o *options) play(ctx context.Context, c *cluster, p *proxies, t *traffic) (map[string]int, error) {
	const progress = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, o.duration)
	defer cancel()
	times := map[string]int{}
	happen := func(a act) error {
		if err := p.Alive(); err != nil {
			return err
		}
		times[a.name]++
		t.after(a.name)
		return a.do(p)
	}
	changes, lines, next := time.NewTicker(o.change), time.NewTicker(progress), time.NewTimer(o.every)
	defer changes.Stop()
	defer lines.Stop()
	defer next.Stop()
	began := time.Now()
	first := act{"upgraded for the first time", func(p *proxies) error { return p.again((*process.Daemon).Stop, 1) }}
	for {
		var err error
		select {
		case <-ctx.Done():
			return times, nil
		case <-changes.C:
			c.change()
		case <-lines.C:
			_, judged := t.snapshot()
			fmt.Printf("%8v  %d attempted, %d lost, %d late; %d proxies\n",
				time.Since(began).Round(time.Second), judged.attempted, judged.lost, judged.late, p.Starts())
		case <-next.C:
			what := acts[rand.IntN(len(acts))]
			if o.former != "" && rand.IntN(2) == 0 {
				what = upgraded
			}
			if first.do != nil {
				what, first = first, act{}
			}
			err = happen(what)
			next.Reset(o.every/2 + rand.N(o.every))
		}
		if err != nil {
			return times, err
		}
	}
}

// report prints the tables.
func report(p *proxies, t *traffic, times map[string]int) {
	const row = "%-44s %10v %8v %8v %7v\n"
	all, judged := t.snapshot()
	fmt.Printf("\n"+row, "what", "attempted", "lost", "late", "")
	for k, c := range all {
		if kind(k) == destroyed {
			continue // no rival here
		}
		fmt.Printf(row, kindNames[k], c.attempted, c.lost, c.late, "")
	}
	fmt.Printf(row, "all but the rejected Service", judged.attempted, judged.lost, judged.late, "")
	fmt.Printf("\n"+row, "of these, begun after the proxy was", "attempted", "lost", "late", "times")
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, act := range slices.Sorted(maps.Keys(t.byAct)) {
		c := count{}
		for k, of := range t.byAct[act] {
			if kind(k).judged() {
				c.add(of)
			}
		}
		fmt.Printf(row, act, c.attempted, c.lost, c.late, times[act])
	}
	fmt.Printf("\n%d processes, of which %d of %d had the Service rejected before they ended; %d hand-overs\n",
		p.Starts(), p.quarantined, p.spoiled, p.handOvers)
	slices.Sort(t.samples) // each begins with its time
	for _, sample := range t.samples {
		fmt.Println(sample)
	}
}
