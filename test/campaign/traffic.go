// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// network is that of netnstest.NodePlan, with podsPerService pods.
type network struct {
	*netnstest.Network
	client, node *netns.Namespace
}

// podsPerService pods serve each live Service, each Service on a separate port. Two of them at a
// time are its endpoints.
const podsPerService = 3

// nodeAddress is the node's address on the client's link, for node ports.
var nodeAddress = netnstest.NodeAddresses

func podAddress(family service.Family, pod int) netip.Addr {
	template := service.PerFamily[string]{service.IPv4: "10.244.1.%d", service.IPv6: "fd00:10:244:1::%d"}[family]
	return netip.MustParseAddr(fmt.Sprintf(template, 10+pod))
}

func clusterIP(family service.Family, n int) netip.Addr {
	if family == service.IPv4 {
		return netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)})
	}
	return netip.MustParseAddr(fmt.Sprintf("fd00:10:96::%x", n))
}

func newNetwork(live int) (*network, error) {
	var servers []netnstest.Server
	for pod := range podsPerService {
		for _, family := range service.Families {
			for s := range live {
				servers = append(servers, netnstest.Server{Name: podName(s, pod), At: netip.AddrPortFrom(podAddress(family, pod), podPort(s))})
			}
		}
	}
	built, err := netnstest.NewNetwork(netnstest.NodePlan(servers...))
	if err != nil {
		return nil, err
	}
	return &network{built, built.Hosts["client"], built.Hosts["node"]}, nil
}

// TCP has sent a packet again for a connection that needs longer than lateMin: it is not lost, but
// worth a look.
const (
	lateMin = netnstest.PromptMax
	// talkPause is between two lines of a long-lived session.
	talkPause = 2500 * time.Millisecond
	// samplesMax bounds what is printed one by one.
	samplesMax = 20
)

// kind is one line of the table.
type kind int

const (
	newTCP kind = iota
	questionUDP
	lineOfSession
	toTheRejected
	destroyed
	kinds
)

var kindNames = [kinds]string{
	newTCP: "new TCP connections", questionUDP: "UDP questions", lineOfSession: "lines on long-lived sessions",
	toTheRejected: "to the rejected Service (not judged)", destroyed: "destroyed by a rival (not judged)",
}

// judged reports whether nothing of the kind may be lost.
func (k kind) judged() bool { return k < toTheRejected }

// count counts exchanges.
type count struct{ attempted, lost, late int }

func (c *count) add(other count) {
	c.attempted += other.attempted
	c.lost += other.lost
	c.late += other.late
}

// traffic counts what the client does. Its methods may be called from anywhere.
type traffic struct {
	client  *netns.Namespace
	targets []target

	mu     sync.Mutex
	counts [kinds]count
	// acts are what has been done to the proxy, oldest first. byAct holds the exchanges that are
	// judged, by the act after which they began.
	acts    []done
	byAct   map[string]*[kinds]count
	samples []string
	// spares reports whether a target is not judged, as the rejected Service's are not.
	spares func(target) bool
	// patience bounds one exchange.
	patience time.Duration
	// told, if any, is told of each loss that is judged. It does not block.
	told func(sample string)
	// outages are the times in which a rival's work stands.
	outages []netnstest.Outage[target]
	// slow finds Services that alone were out of reach.
	slow netnstest.Slow[int]
}

type done struct {
	at  time.Time
	act string
}

func newTraffic(client *netns.Namespace, targets []target, patience time.Duration) *traffic {
	return &traffic{
		client: client, targets: targets, byAct: map[string]*[kinds]count{}, patience: patience,
		spares: func(t target) bool { return t.service == rejectedNumber },
	}
}

// breaks begins an outage, and returns what ends it.
func (t *traffic) breaks(hits func(target, netnstest.Exchange) bool) (ends func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := len(t.outages)
	t.outages = append(t.outages, netnstest.Outage[target]{Hits: hits, From: time.Now()})
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.outages[i].To = time.Now()
	}
}

// tell sets whom losses are told to.
func (t *traffic) tell(told func(sample string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.told = told
}

// after notes what has been done to the proxy.
func (t *traffic) after(act string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.acts = append(t.acts, done{time.Now(), act})
}

// start makes so many new connections and questions a second, and holds a session to each TCP
// target.
func (t *traffic) start(ctx context.Context, rate int) (*netnstest.Load, error) {
	config := netnstest.LoadConfig{
		Client: t.client, Pause: time.Duration(len(t.targets)) * time.Second / time.Duration(rate),
		TalkPause: talkPause, Patience: t.patience, Note: t.note,
	}
	for _, to := range t.targets {
		config.Targets = append(config.Targets, netnstest.Target{Network: to.protocol, Addr: to.addr})
	}
	return netnstest.StartLoad(ctx, config)
}

// rightPod returns an error when a pod of another Service has answered.
func (t target) rightPod(answer netnstest.Answer) error {
	if !strings.HasPrefix(answer.Backend, serviceName(t.service)+"-") {
		return fmt.Errorf("%s answered, a pod of another Service", answer.Backend)
	}
	return nil
}

// note counts an exchange.
func (t *traffic) note(e netnstest.Exchange) {
	to, k := t.targets[e.Target], newTCP
	switch {
	case t.spares(to):
		k = toTheRejected
	case e.Session:
		k = lineOfSession
	case to.protocol == "udp":
		k = questionUDP
	}
	if e.Err == nil {
		e.Err = to.rightPod(e.Answer)
	}
	c, took := count{attempted: 1}, e.Ended.Sub(e.Began)
	switch {
	case e.Err != nil:
		c.lost = 1
	case took > lateMin:
		c.late = 1
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	hit := func(o netnstest.Outage[target]) bool { return o.Covers(to, e) }
	if c.lost+c.late > 0 && k != toTheRejected && slices.ContainsFunc(t.outages, hit) {
		k = destroyed
	}
	t.counts[k].add(c)
	if k.judged() && c.lost == 0 {
		t.slow.Note(to.service, e)
	}
	act := t.acts[0].act
	for _, a := range slices.Backward(t.acts) {
		if a.at.Before(e.Began) {
			act = a.act
			break
		}
	}
	if t.byAct[act] == nil {
		t.byAct[act] = &[kinds]count{}
	}
	t.byAct[act][k].add(c)
	if !k.judged() || c.lost+c.late == 0 {
		return
	}
	room := samplesMax
	sample := fmt.Sprintf("%s after %q: %s, %s, by %s: %v after %v", e.Began.Format("15:04:05.000"), act, kindNames[k], to,
		cmp.Or(e.Answer.Backend, "nobody"), e.Err, took.Round(time.Millisecond))
	if c.lost > 0 {
		room *= 2 // what is late leaves room for it
		if t.told != nil {
			t.told(sample)
		}
	}
	if len(t.samples) < room {
		t.samples = append(t.samples, sample)
	}
}

// snapshot returns the counts so far, and the sum over the Services that must not notice.
func (t *traffic) snapshot() (all [kinds]count, judged count) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, c := range t.counts {
		if kind(k).judged() {
			judged.add(c)
		}
	}
	return t.counts, judged
}

// question is how long one question of many waits for its answer. A SYN that was lost is not waited
// for.
func (t *traffic) question() time.Duration { return max(time.Second, t.patience/5) }

// awaitAll asks every target until all have answered.
func (t *traffic) awaitAll(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, to := range t.targets {
		for {
			asking, stop := context.WithTimeout(ctx, t.question())
			answer, err := netnstest.Ask(asking, t.client, to.protocol, to.addr)
			stop()
			if err == nil {
				err = to.rightPod(answer)
			}
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%v does not answer before the campaign: %w", to, err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}
