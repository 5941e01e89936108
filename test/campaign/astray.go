// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/process"
)

// beyond is the host behind the node's default route. It answers every packet to some Services, from the address that
// the packet was sent to.
var beyond = netns.Cable{
	Router: "node", Leaf: "beyond", Port: "to-beyond",
	AtRouter: netns.Prefixes("192.0.2.1/24", "2001:db8:2::1/64"), AtLeaf: netns.Prefixes("192.0.2.2/24", "2001:db8:2::2/64"),
}

const (
	// promise is how long after a repair the last client reaches its Service.
	promise = 500 * time.Millisecond
	// beyondName is what the server beyond answers.
	beyondName = "beyond"
)

// journeys are how long answers of the server beyond are on their way, each to the clients of another Service: 1, 2, and
// so on, whose endpoints never change.
var journeys = [...]time.Duration{0, 2 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond}

// straying is what the instants of the fault share.
type straying struct {
	servers []*netnstest.Backend
	// steady are clients from before the first instant.
	steady []*client
}

// client keeps sending to a Service from the same socket, in spite of all.
type client struct {
	*netnstest.Stream
	family service.Family
	right  string
}

// firewall is what a firewall's script loads. The kernel goes on to track connections.
const firewall = `table inet others {
	chain tracking { type filter hook prerouting priority 0; ct state new counter; }
	chain leaving { type nat hook postrouting priority 100; }
	chain arriving { type nat hook prerouting priority -100; }
	chain begun { type nat hook output priority -100; }
}
`

var astrayInstants = []struct {
	name    string
	stopped bool
	rules   string
	// takeover lets the process change its mode when it continues, and change it back.
	takeover bool
}{
	{name: "all rules deleted"},
	{name: "all rules replaced by those of a firewall", rules: firewall},
	{name: "all rules deleted while the process was stopped", stopped: true},
	{name: "all rules replaced while the process was stopped", stopped: true, rules: firewall},
	{name: "all rules replaced before a takeover from another mode", stopped: true, rules: firewall, takeover: true},
}

// beginAstray attaches the host beyond, and lets clients of both protocols and families send.
func beginAstray(ctx context.Context, r *trial) error {
	s := &straying{}
	r.straying = s
	if err := r.net.Attach(beyond); err != nil {
		return err
	}
	for _, gateway := range beyond.AtLeaf {
		if err := r.net.node.AddRoute(netns.Everything(gateway.Addr()), gateway.Addr()); err != nil {
			return err
		}
	}
	host := r.net.Hosts[beyond.Leaf]
	for i, journey := range journeys {
		n := i + 1
		for _, family := range service.Families {
			if err := host.AddAddress("lo", netns.Single(clusterAddr(family, n, webPort).Addr())); err != nil {
				return err
			}
			for _, port := range []uint16{webPort, askPort} {
				server, err := netnstest.StartBackend(host, beyondName, clusterAddr(family, n, port))
				if err != nil {
					return err
				}
				server.Think(journey)
				s.servers = append(s.servers, server)
			}
			r.c.setSlice(family, n, "web", corev1.ProtocolTCP, []int{0}) // so that the name of the right pod is known
			r.c.setSlice(family, n, "ask", corev1.ProtocolUDP, []int{0})
		}
	}
	if err := r.rightPodsOnly(ctx); err != nil {
		return err
	}
	var err error
	if s.steady, err = r.clients(ctx); err != nil {
		return err
	}
	_, err = r.settled(ctx, s.steady)
	return err
}

// rightPodsOnly waits until only the right pods serve the Services. A connection to another pod would last.
func (r *trial) rightPodsOnly(ctx context.Context) error {
	const enough = 40 // another pod of three stays unseen with a probability below 1e-7
	for i := range journeys {
		for _, family := range service.Families {
			for protocol, port := range map[string]uint16{"tcp": webPort, "udp": askPort} {
				to, right := clusterAddr(family, i+1, port), podName(i+1, 0)
				err := r.await(ctx, fmt.Sprintf("%v is not served by %s alone", to, right), func() (bool, error) {
					for range enough {
						asking, stop := context.WithTimeout(ctx, r.t.question())
						answer, err := netnstest.Ask(asking, r.t.client, protocol, to)
						stop()
						if err != nil || answer.Backend != right {
							return false, nil
						}
					}
					return true, nil
				})
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (r *trial) endAstray() (err error) {
	r.row.note("the last client reached its Service %v after a repair at most", r.row.worst.Round(time.Millisecond))
	err = closeAll(r.straying.steady)
	for _, server := range r.straying.servers {
		err = errors.Join(err, server.Close())
	}
	for i := range journeys {
		r.c.setEndpoints(i+1, 0)
	}
	return errors.Join(err, r.net.Detach(beyond.Leaf))
}

// clients lets a client of each Service, family and protocol send from a host outside, and one from the node itself.
func (r *trial) clients(ctx context.Context) (all []*client, err error) {
	for _, from := range []*netns.Namespace{r.net.client, r.net.node} {
		for _, family := range service.Families {
			for i := range journeys {
				datagrams, err := netnstest.OpenStream(ctx, from, netip.AddrPort{}, clusterAddr(family, i+1, askPort))
				if err != nil {
					return all, err
				}
				connections := netnstest.OpenTCPStream(ctx, from, clusterAddr(family, i+1, webPort))
				for _, s := range []*netnstest.Stream{datagrams, connections} {
					all = append(all, &client{Stream: s, family: family, right: podName(i+1, 0)})
				}
			}
		}
	}
	return all, nil
}

func closeAll(clients []*client) (err error) {
	for _, c := range clients {
		err = errors.Join(err, c.Close())
	}
	return err
}

// astray deletes all rules while clients send, who hear the server beyond. Each of them is to reach its Service soon after
// the rules are back.
func astray(ctx context.Context, r *trial, number int) error {
	now := astrayInstants[number%len(astrayInstants)]
	r.row.count(now.name)
	over := r.t.breaks(func(target, netnstest.Exchange) bool { return true })
	want := r.c.mark()
	if now.stopped {
		if err := r.signal(unix.SIGSTOP); err != nil {
			return err
		}
	}
	if err := r.rival().replace(now.rules); err != nil {
		return err
	}
	fresh, err := r.clients(ctx)
	if err == nil && now.stopped {
		if err = r.heard(ctx, fresh); err == nil && now.takeover {
			r.p.mode = otherMode(r.mode)
			err = r.p.configure()
		}
		err = errors.Join(err, r.signal(unix.SIGCONT))
	}
	all := append(fresh, r.straying.steady...)
	if err == nil {
		err = r.restored(ctx, all, want)
	}
	if err == nil && now.takeover {
		err = r.takeBack(ctx, all)
	}
	if err == nil {
		err = r.t.awaitAll(ctx, r.recovery)
	}
	if err = errors.Join(err, closeAll(fresh)); err != nil {
		return fmt.Errorf("%s: %w", now.name, err)
	}
	over()
	return nil
}

// otherMode returns the mode from which an instant takes over.
func otherMode(mode string) string {
	if mode == "nftables" {
		return "iptables"
	}
	return "nftables"
}

// restored waits for the repair, and until all clients reach their Services, and counts those that were late.
func (r *trial) restored(ctx context.Context, clients []*client, want string) error {
	from := time.Now()
	repaired := r.repaired(ctx)
	r.row.details["clients heard the server beyond when the rules were back"] += r.heardBeyond(clients)
	since, err := r.settled(ctx, clients)
	if err != nil {
		return err
	}
	for i, c := range clients {
		took := since[i].Sub(repaired[c.family])
		r.row.details["clients"]++
		r.row.worst = max(r.row.worst, took)
		if took > promise {
			r.row.details[fmt.Sprintf("clients reached their Service later than %v after a repair", promise)]++
			r.row.note("instant %d: %s after %v", r.row.instants, c, took.Round(time.Millisecond))
		}
	}
	return r.recovered(ctx, from, want, false)
}

// takeBack changes the mode back. The rejected Service has no rules then, because those of the other mode went with it, so a
// build that rejects none writes them again.
func (r *trial) takeBack(ctx context.Context, clients []*client) error {
	err := r.alone(ctx, r.p.mode)
	if err == nil {
		err = r.changeMode(ctx, r.mode)
	}
	if err == nil {
		_, err = r.settled(ctx, clients)
	}
	for _, build := range []int{0, 1} {
		if err == nil {
			err = r.p.again((*process.Daemon).Stop, build)
		}
		if err == nil {
			err = r.recovered(ctx, time.Now(), r.c.mark(), true)
		}
	}
	return err
}

// heard waits until each client has heard the server beyond. A client whose port an earlier one had may hear the
// right pod instead, because the kernel still tracks the earlier connection.
func (r *trial) heard(ctx context.Context, clients []*client) error {
	for _, c := range clients {
		var who string
		err := r.await(ctx, "a client does not hear the server beyond", func() (bool, error) {
			who, _, _ = c.Answers()
			return who == beyondName || who == c.right, nil
		})
		if err != nil {
			return fmt.Errorf("%w: %s hears %q\n%s", err, c, who, r.flowsOf(c))
		}
	}
	if r.heardBeyond(clients) == 0 {
		return errors.New("no client hears the server beyond: that proves nothing")
	}
	return nil
}

// heardBeyond counts the clients whose last answer is not their Service's.
func (r *trial) heardBeyond(clients []*client) (n int) {
	for _, c := range clients {
		if who, _, _ := c.Answers(); who == beyondName {
			n++
		}
	}
	return n
}

// repaired returns when the rules of each family were back: when a new client first reached its Service.
func (r *trial) repaired(ctx context.Context) (at service.PerFamily[time.Time]) {
	const question, pause = 50 * time.Millisecond, 2 * time.Millisecond
	var asking sync.WaitGroup
	for _, family := range service.Families {
		asking.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				bounded, stop := context.WithTimeout(ctx, question)
				answer, err := netnstest.Ask(bounded, r.net.client, "udp", clusterAddr(family, 1, askPort))
				stop()
				if err == nil && answer.Backend == podName(1, 0) {
					at[family] = began
					return
				}
				time.Sleep(pause)
			}
		})
	}
	asking.Wait()
	return at
}

// settled waits until each client hears of its Service's pod alone, for longer than any answer is on its way, and returns
// since when.
func (r *trial) settled(ctx context.Context, clients []*client) ([]time.Time, error) {
	quiet := 2 * journeys[len(journeys)-1]
	all := make([]time.Time, len(clients))
	for i, c := range clients {
		who, since, last := c.Answers()
		err := r.await(ctx, fmt.Sprintf("a client of %s does not reach it", c.right), func() (bool, error) {
			who, since, last = c.Answers()
			all[i] = since
			return who == c.right && last.Sub(since) > quiet && time.Since(last) < quiet, nil
		})
		if err != nil {
			return nil, fmt.Errorf("%w: %s hears %s, last %v ago\n%s", err, c, who, time.Since(last).Round(time.Millisecond), r.flowsOf(c))
		}
	}
	return all, nil
}

// flowsOf describes the flows of a client.
func (r *trial) flowsOf(c *client) string {
	flows, err := netnstest.Conntrack(r.p.Namespace)
	var text strings.Builder
	for _, f := range flows {
		if local := c.Local(); f.Source == local || f.Destination == local {
			fmt.Fprintf(&text, "flow of protocol %d from %s to %s, answered by %s, %d packets\n", f.Protocol, f.Source, f.Destination, f.Answerer, f.Packets)
		}
	}
	if err != nil {
		fmt.Fprintln(&text, err)
	}
	return text.String()
}
