// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/process"
)

const (
	// rightMax bounds the time from a repair until no packet leaves the node untranslated any more. It is
	// ten times the half second that an idle machine needs at most; the table tells how long it took.
	rightMax = 5 * time.Second
	// right is how long a socket has had nothing but answers then.
	right = 500 * time.Millisecond
	// observed is how long the sockets go on after a repair. The proxy repairs the next damage immediately
	// only if a repair lasted 2 s (ADR 17).
	observed = 2500 * time.Millisecond
	// held is how long first packets are held on their way through the node. They met no rule and enter
	// conntrack after the repair.
	held = 60 * time.Millisecond
	// repairMax bounds the wait for a repair.
	repairMax = 2 * time.Minute
)

// damage is one way to damage the rules of some families.
type damage struct {
	name, commands string
	families       []service.Family
}

// damages returns the ways to damage the rules of a mode. After the first one, nothing makes the kernel
// track connections until the proxy writes its rules again.
func damages(mode string) []damage {
	table := map[string]string{"nftables": "kube-proxy", "iptables": "nat"}[mode]
	return []damage{
		{"all rules flushed", "flush ruleset\n", service.Families[:]},
		{"all rules flushed, another program's loaded", "flush ruleset\n" + foreign, service.Families[:]},
		{"IPv4 table deleted", "delete table ip " + table + "\n", []service.Family{service.IPv4}},
		{"IPv6 table deleted", "delete table ip6 " + table + "\n", []service.Family{service.IPv6}},
	}
}

// harm is the campaign that damages the rules.
type harm struct {
	*options
	net     *network
	proxy   *process.Daemon
	windows *windows
	strays  *strays
	// old are the sockets that are open from the beginning.
	old []*asker

	late            []string
	longest, repair time.Duration
	checked         int
}

func (o *options) harm(ctx context.Context, net *network, proxy *process.Daemon, w *windows) (err error) {
	h := &harm{options: o, net: net, proxy: proxy, windows: w, strays: &strays{askers: map[netip.AddrPort]*asker{}}}
	servers, err := net.hosts()
	defer func() {
		for _, s := range servers {
			err = errors.Join(err, s.Close())
		}
	}()
	if err != nil {
		return err
	}
	queue, err := netnstest.Hold(net.node, held)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, queue.Close()) }()
	beyond, _, err := hardware(net.beyond, "eth0")
	if err != nil {
		return err
	}
	in, err := packetSocket(net.beyond, beyond, unix.ETH_P_ALL)
	if err != nil {
		return err
	}
	go h.strays.watch(in)
	if h.old, err = h.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close(h.old)) }()
	if err := h.awaitAnswers(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, proxy.Tail(5))
	}
	for round := range o.damage {
		if err := h.round(ctx, round); err != nil {
			return err
		}
	}
	return h.report()
}

// open opens three sockets per family: from another host to the VIP and to the ClusterIP, and from the
// node to the ClusterIP.
func (h *harm) open(ctx context.Context) (all []*asker, err error) {
	for _, family := range service.Families {
		for _, c := range []struct {
			from *netns.Namespace
			to   netip.Addr
		}{{h.net.client, vip[family]}, {h.net.client, clusterIP[family]}, {h.net.node, clusterIP[family]}} {
			a, err := newAsker(ctx, c.from, c.to)
			if err != nil {
				return nil, errors.Join(err, h.close(all))
			}
			h.strays.put(a)
			all = append(all, a)
		}
	}
	return all, nil
}

func (h *harm) close(all []*asker) (err error) {
	for _, a := range all {
		h.strays.remove(a)
		err = errors.Join(err, a.close())
	}
	return err
}

// awaitAnswers waits until every socket is answered.
func (h *harm) awaitAnswers(ctx context.Context) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && ctx.Err() == nil; sleep(ctx, 100*time.Millisecond) {
		served := 0
		for _, a := range h.old {
			if answered, _ := a.state(); answered > 0 {
				served++
			}
		}
		if served == len(h.old) {
			return nil
		}
	}
	return errors.Join(ctx.Err(), errors.New("the sockets are not answered"))
}

// round damages the rules once. Sockets that were open before keep sending, and others begin during the
// damage.
func (h *harm) round(ctx context.Context, number int) error {
	d := damages(h.mode)[rand.IntN(4)]
	begun := make(chan error, 1)
	var young []*asker
	go func() {
		time.Sleep(rand.N(30 * time.Millisecond))
		var err error
		young, err = h.open(ctx)
		begun <- err
	}()
	if err := h.windows.damage(h.net.node, d); err != nil {
		return err
	}
	took, err := h.windows.awaitRepair(ctx, d.families, repairMax)
	if err := errors.Join(err, <-begun); err != nil {
		return fmt.Errorf("%s: %w\n%s", d.name, err, h.proxy.Tail(5))
	}
	h.repair = max(h.repair, took)
	sleep(ctx, observed)
	all := append(h.old[:len(h.old):len(h.old)], young...)
	for end := time.Now().Add(rightMax); slices.ContainsFunc(all, (*asker).isWrong) && time.Now().Before(end) && ctx.Err() == nil; {
		sleep(ctx, interval)
	}
	late, longest := h.judge(number, d, all)
	fmt.Printf("%4d  %-44s repaired after %5v, %d of %d sockets late, last untranslated packet %v after the repair\n",
		number+1, d.name, took.Round(time.Millisecond), late, len(all), longest.Round(time.Millisecond))
	return errors.Join(ctx.Err(), h.close(young))
}

// judge looks for sockets that sent packets untranslated after a repair, or that get no answer.
func (h *harm) judge(number int, d damage, all []*asker) (late int, longest time.Duration) {
	for _, a := range all {
		if !slices.Contains(d.families, a.family) {
			continue
		}
		h.checked++
		_, strayed := a.state()
		after := strayed - h.windows.repaired(a.family)
		longest = max(longest, after)
		if a.isWrong() {
			h.late = append(h.late, fmt.Sprintf("%d, %s: %s untranslated %v after the repair, or without answer", number+1, d.name, a.name, after))
			late++
		}
	}
	h.longest = max(h.longest, longest)
	return late, longest
}

func (h *harm) report() error {
	fmt.Printf("\n%d damages, longest repair %v\n", h.damage, h.repair.Round(time.Millisecond))
	fmt.Printf("last untranslated packet %v after a repair\n", h.longest.Round(time.Millisecond))
	fmt.Printf("sockets that were not right %v after a repair: %d of %d\n", rightMax, len(h.late), h.checked)
	if len(h.late) == 0 {
		return nil
	}
	fmt.Println(strings.Join(h.late, "\n"))
	return errors.New("packets left the node untranslated after a repair")
}

// hosts gives the client and the pod addresses, and starts what answers in the pod.
func (n *network) hosts() (servers []net.PacketConn, err error) {
	for _, family := range service.Families {
		flag := service.PerFamily[string]{service.IPv4: "-4", service.IPv6: "-6"}[family]
		for _, host := range []struct {
			*netns.Namespace
			at, router string
		}{
			{n.client, service.PerFamily[string]{service.IPv4: "198.18.0.2/15", service.IPv6: "2001:db8:1::2/64"}[family],
				service.PerFamily[string]{service.IPv4: "198.18.0.1", service.IPv6: "2001:db8:1::1"}[family]},
			{n.pods, service.PerFamily[string]{service.IPv4: "10.244.1.10/24", service.IPv6: "fd00:10:244:1::10/64"}[family],
				service.PerFamily[string]{service.IPv4: "10.244.1.1", service.IPv6: "fd00:10:244:1::1"}[family]},
		} {
			err = errors.Join(host.AddAddress("eth0", netip.MustParsePrefix(host.at)),
				netnstest.Run(host, exec.Command("ip", flag, "route", "add", "default", "via", host.router)))
			if err != nil {
				return servers, err
			}
		}
		// The pod answers, unlike that of the other campaigns.
		if err := netnstest.Run(n.node, exec.Command("ip", flag, "neigh", "del", pod[family].String(), "dev", "to-pods")); err != nil {
			return servers, err
		}
		s, err := n.pods.ListenPacket("udp", netip.AddrPortFrom(pod[family], podPort).String())
		if err != nil {
			return servers, err
		}
		servers = append(servers, s)
		go echo(s)
	}
	return servers, nil
}
