// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
)

// epoch is when the time of packets begins.
var epoch = time.Now()

// prober sends first packets and sees those that leave the node untranslated.
type prober struct {
	windows *windows
	// next is the number of the next client's port.
	next uint32
	// reuse is set after await.
	reuse     bool
	out       int
	templates []*template
	sent      service.PerFamily[[len(protocols)]atomic.Int64]

	mu      sync.Mutex
	strayed []seen // not judged yet
	// excused, late and found count the others: sent while a table was missing, up to cleaned
	// after, of which longest is the last, and otherwise. Samples describe some of those found.
	excused, late, found int
	longest              time.Duration
	samples              []string
}

// The ports of clients. With -reuse, one client takes ports at random, as a host does. Half of its
// connections then begin while conntrack still has the last one from the same port.
const (
	firstPort     = 1024
	ephemeralPort = 32768
	lastPort      = 61000
	reusedClient  = 0xf000 // no packet of await is from there
	samplesMax    = 50
	// cleaned is how long after a repair the flows that lead astray are deleted at the latest, on a
	// machine with too much to do.
	cleaned = 10 * time.Second
)

func newProber(n *network, w *windows) (*prober, error) {
	_, router, err := hardware(n.node, "to-client")
	if err != nil {
		return nil, err
	}
	p := &prober{windows: w}
	index, own, err := hardware(n.client, "eth0")
	if err != nil {
		return nil, err
	}
	for _, family := range service.Families {
		for protocol := range protocols {
			p.templates = append(p.templates, newTemplate(family, protocol, own, router))
		}
	}
	if p.out, err = packetSocket(n.client, index, 0); err != nil {
		return nil, err
	}
	beyond, _, err := hardware(n.beyond, "eth0")
	if err != nil {
		return nil, err
	}
	in, err := packetSocket(n.beyond, beyond, unix.ETH_P_ALL)
	if err != nil {
		return nil, err
	}
	go p.watch(in)
	return p, nil
}

// packetSocket opens a socket for frames. It is open until the process ends.
func packetSocket(n *netns.Namespace, index int, protocol uint16) (fd int, err error) {
	err = n.Do(func() error {
		network := protocol<<8 | protocol>>8
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(network)); err != nil {
			return fmt.Errorf("packet socket: %w", err)
		}
		return errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
			unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index, Protocol: network}))
	})
	return fd, err
}

// send sends until the context ends, ten times slower while a table is missing.
func (p *prober) send(ctx context.Context) error {
	for ; ctx.Err() == nil; p.next++ {
		n := p.next
		span := uint32(lastPort - firstPort)
		client, port := n/span, firstPort+n%span
		if p.reuse {
			client, port = reusedClient, ephemeralPort+rand.Uint32N(lastPort-ephemeralPort)
		}
		for _, t := range p.templates {
			if _, err := unix.Write(p.out, t.fill(client, uint16(port), time.Since(epoch))); err != nil {
				if errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EINTR) {
					continue
				}
				return fmt.Errorf("send: %w", err)
			}
			p.sent[t.family][t.protocol].Add(1)
		}
		switch {
		case p.reuse, p.windows.open():
			time.Sleep(time.Millisecond)
		case n%16 == 0:
			time.Sleep(500 * time.Microsecond) // the conntrack table has 262,144 entries
		}
	}
	return nil
}

func (p *prober) total() (n int64) {
	for _, family := range service.Families {
		for protocol := range protocols {
			n += p.sent[family][protocol].Load()
		}
	}
	return n
}

// watch collects what comes beyond the node.
func (p *prober) watch(fd int) {
	frame := make([]byte, 2048)
	for {
		n, err := unix.Read(fd, frame)
		if err != nil {
			continue
		}
		if s, ok := parse(frame[:n], time.Since(epoch)); ok {
			p.mu.Lock()
			p.strayed = append(p.strayed, s)
			p.mu.Unlock()
		}
	}
}

// await sends until nothing strays any more, and begins the count again.
func (p *prober) await(ctx context.Context, patience time.Duration) error {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		round, cancel := context.WithTimeout(ctx, time.Second)
		err := p.send(round)
		cancel()
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		time.Sleep(100 * time.Millisecond)
		p.mu.Lock()
		strayed := len(p.strayed)
		p.strayed = nil
		p.mu.Unlock()
		for _, family := range service.Families {
			for protocol := range protocols {
				p.sent[family][protocol].Store(0)
			}
		}
		if strayed == 0 {
			return nil
		}
	}
	return errors.New("packets are not translated")
}

// judge sorts what has strayed into what is excused and what is found. What came while a table
// is missing waits.
func (p *prober) judge(w *windows) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var wait []seen
	for _, s := range p.strayed {
		missing, age, known := w.state(s)
		switch {
		case !known:
			wait = append(wait, s)
		case missing:
			p.excused++
		case p.reuse && age < cleaned:
			p.late++
			p.longest = max(p.longest, age)
		default:
			if p.found++; len(p.samples) < samplesMax {
				p.samples = append(p.samples, fmt.Sprintf("%8v  %v, %s, from %v: %v after a repair, %s",
					s.sent.Round(time.Microsecond), s.family, protocols[s.protocol].name, s.client, age, w.before(s)))
			}
		}
	}
	p.strayed = wait
}
