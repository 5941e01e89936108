// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/test/netnstest"
)

// askMax bounds one question of a client that asks again until the answer is right. An answer takes
// well below a millisecond.
const askMax = 300 * time.Millisecond

// question is one frontend, and which answer is right.
type question struct {
	network string
	at      netip.AddrPort
	right   func(netnstest.Answer, error) bool
	// silent says that the node drops connections until the answer is right, so that waiting for one
	// of them must not take long.
	silent bool
	// refusal says that no answer is right. It is so from the moment of the question.
	refusal bool
}

// ask returns whether the answer is right now. It opens a new connection.
func (n *network) ask(ctx context.Context, q question, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return q.right(netnstest.Ask(ctx, n.client, q.network, q.at))
}

// until asks until the answer is right, and returns since when it is.
func (n *network) until(ctx context.Context, q question, began time.Time) (time.Time, bool) {
	for ctx.Err() == nil {
		asked, patience := time.Now(), askMax
		if q.silent {
			const least, share = 5 * time.Millisecond, 10
			patience = min(askMax, max(least, asked.Sub(began)/share))
		}
		right := n.ask(ctx, q, patience)
		switch {
		case right && q.refusal:
			return asked, true
		case right:
			return time.Now(), true
		}
		pause(ctx, began)
	}
	return time.Time{}, false
}

// pause waits for a millisecond, or 2% of what has passed: what takes long need not be known to the
// millisecond, and the client must not take the processor from what it measures.
func pause(ctx context.Context, began time.Time) {
	const shortest, longest, share = time.Millisecond, 200 * time.Millisecond, 50
	select {
	case <-ctx.Done():
	case <-time.After(min(longest, max(shortest, time.Since(began)/share))):
	}
}

// untilAll asks all, a few at a time, until each has answered right once. It returns how long each
// took; those that did not in time are missing. Late is how many were asked more than once.
func (n *network) untilAll(ctx context.Context, questions []question, began time.Time) (took []time.Duration, late int) {
	const clients = 4
	type attempt struct {
		question
		again bool
	}
	pending := make(chan attempt, len(questions))
	for _, i := range rand.Perm(len(questions)) {
		pending <- attempt{questions[i], false}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	record := func(a attempt) {
		mu.Lock()
		defer mu.Unlock()
		took = append(took, time.Since(began))
		if a.again {
			late++
		}
		if len(took) == len(questions) {
			cancel()
		}
	}
	var group sync.WaitGroup
	for range min(clients, len(questions)) {
		group.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case a := <-pending:
					if n.ask(ctx, a.question, askMax) {
						record(a)
						continue
					}
					a.again = true
					pending <- a
					pause(ctx, began)
				}
			}
		})
	}
	group.Wait()
	return took, late
}

func (it *item) network() string {
	if it.protocol() == "UDP" {
		return "udp"
	}
	return "tcp"
}

// frontend is where the Service is asked: its node port if it has one.
func (it *item) frontend() netip.AddrPort {
	if it.nodePort != 0 {
		return netip.AddrPortFrom(nodeAddress, uint16(it.nodePort))
	}
	return netip.AddrPortFrom(it.clusterIP(), servicePort)
}

// frontend6 is the same in IPv6.
func (it *item) frontend6() netip.AddrPort {
	if it.nodePort != 0 {
		return netip.AddrPortFrom(nodeAddress6, uint16(it.nodePort))
	}
	return netip.AddrPortFrom(it.clusterIP6(), servicePort)
}

// answered asks whether one of these endpoints of the Service answers. A Service without endpoints
// has to refuse.
func (it *item) answered(endpoints ...int) question {
	q := question{network: it.network(), at: it.frontend()}
	if len(it.endpoints) == 0 {
		q.right = func(_ netnstest.Answer, err error) bool { return errors.Is(err, unix.ECONNREFUSED) }
		return q
	}
	want := map[string]bool{}
	for _, e := range endpoints {
		want[endpointAddress(e).String()] = true
	}
	q.right = func(answer netnstest.Answer, err error) bool { return err == nil && want[answer.Backend] }
	return q
}

// gone asks whether no endpoint answers any more.
func (it *item) gone() question {
	right := func(a netnstest.Answer, err error) bool { return err != nil || strayed(a) }
	return question{network: it.network(), at: it.frontend(), right: right, refusal: true}
}

// strayed reports whether no rule of a proxy has applied to a connection.
func strayed(a netnstest.Answer) bool {
	addr, err := netip.ParseAddr(a.Backend)
	return err != nil || serviceRange.Contains(addr) || serviceRange6.Contains(addr)
}

// traffic is a client that keeps connecting to Services that nothing changes, and holds sessions to
// them. What fails is lost.
type traffic struct {
	load    *netnstest.Load
	targets []netnstest.Target

	mu     sync.Mutex
	counts map[string]connections
	// step is what the proxies are going through.
	step string
	// tell, when set, is called for what is lost.
	tell func(netnstest.Exchange)
}

// connections counts exchanges: new connections, UDP questions, lines on established sessions.
type connections struct{ attempted, lost int }

func startTraffic(ctx context.Context, n *network, targets []*item) (*traffic, error) {
	const perSecond, patience = 50, 3 * time.Second
	t := &traffic{counts: map[string]connections{}}
	config := netnstest.LoadConfig{
		Client: n.client, Pause: time.Duration(len(targets)) * time.Second / perSecond, TalkPause: time.Second,
		Patience: patience, Note: t.note,
	}
	for _, it := range targets {
		config.Targets = append(config.Targets, netnstest.Target{Network: it.network(), Addr: it.frontend()})
		if it.dual {
			config.Targets = append(config.Targets, netnstest.Target{Network: it.network(), Addr: it.frontend6()})
		}
	}
	var err error
	t.targets = config.Targets
	t.load, err = netnstest.StartLoad(ctx, config)
	return t, err
}

func (t *traffic) note(e netnstest.Exchange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts[t.step]
	c.attempted++
	if e.Err != nil || strayed(e.Answer) {
		if c.lost++; t.tell != nil {
			t.tell(e)
		}
	}
	t.counts[t.step] = c
}

// during names the step to which the exchanges from now on belong.
func (t *traffic) during(step string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.step = step
}

func (t *traffic) of(step string) connections {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[step]
}
