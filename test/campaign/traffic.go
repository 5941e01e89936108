package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// patience bounds one exchange. A connection that needs longer than lateMin was saved by
// TCP sending a packet again: it is not lost, and worth a look.
const (
	patience = 5 * time.Second
	lateMin  = 900 * time.Millisecond
	// talkPause is between two lines of a long-lived session.
	talkPause = 2 * time.Second
	// samplesMax bounds the losses that are told one by one.
	samplesMax = 20
)

// kind is what is counted on a line of its own.
type kind int

const (
	newTCP kind = iota
	questionUDP
	lineOfSession
	toTheRefused
	kinds
)

var kindNames = [kinds]string{
	newTCP: "new TCP connections", questionUDP: "UDP questions", lineOfSession: "lines on long-lived sessions",
	toTheRefused: "to the refused Service (not judged)",
}

// count is of exchanges.
type count struct{ attempted, lost, late int }

func (c *count) add(other count) {
	c.attempted += other.attempted
	c.lost += other.lost
	c.late += other.late
}

// traffic is what the client does. Its methods may be called from anywhere.
type traffic struct {
	client  *netns.Namespace
	targets []target
	done    sync.WaitGroup

	mu     sync.Mutex
	counts [kinds]count
	// act is what has been done to the proxy last; byAct holds the exchanges with those
	// who must not notice, by the act after which they began.
	act     string
	byAct   map[string]*count
	samples []string
}

func newTraffic(client *netns.Namespace, targets []target) *traffic {
	return &traffic{client: client, targets: targets, byAct: map[string]*count{}}
}

// after says what has been done to the proxy.
func (t *traffic) after(act string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.act = act
}

// start makes so many exchanges a second, and holds a session to each TCP target, until
// the context ends.
func (t *traffic) start(ctx context.Context, rate int) {
	t.done.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				to := t.targets[rand.IntN(len(t.targets))]
				t.done.Go(func() { t.once(to) })
			}
		}
	})
	for _, to := range t.targets {
		if to.protocol == "tcp" {
			t.done.Go(func() { t.talk(ctx, to) })
		}
	}
}

func (t *traffic) once(to target) {
	k := newTCP
	if to.protocol == "udp" {
		k = questionUDP
	}
	t.measure(k, to, func(ctx context.Context) error { return t.ask(ctx, to) })
}

// ask makes one exchange. It is not bound to the end of the campaign: stopping is no loss.
func (t *traffic) ask(ctx context.Context, to target) error {
	answer, err := t.client.Ask(ctx, to.protocol, to.addr)
	if err == nil && !strings.HasPrefix(answer.Backend, serviceName(to.service)+"-") {
		err = fmt.Errorf("%s answered, a pod of another Service", answer.Backend)
	}
	return err
}

// talk holds a session and says a line now and then; when the session is lost, it begins
// another one.
func (t *traffic) talk(ctx context.Context, to target) {
	var session *netns.Session
	defer func() {
		if session != nil {
			_ = session.Close() // it has served its purpose
		}
	}()
	for n := 0; ; n++ {
		pause := talkPause + time.Duration(rand.IntN(1000))*time.Millisecond
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if session == nil {
			opening, cancel := context.WithTimeout(context.Background(), patience)
			session, _ = t.client.Connect(opening, to.addr) // new connections are counted elsewhere
			cancel()
			continue
		}
		if t.measure(lineOfSession, to, func(ctx context.Context) error { return session.Echo(ctx, fmt.Sprint("line ", n)) }) != nil {
			_ = session.Close() // it is lost already
			session = nil
		}
	}
}

// measure counts an exchange.
func (t *traffic) measure(k kind, to target, exchange func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	t.mu.Lock()
	act := t.act
	t.mu.Unlock()
	err := exchange(ctx)
	took := time.Since(began)
	if to.service == refusedNumber {
		k = toTheRefused
	}
	c := count{attempted: 1}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err != nil:
		c.lost = 1
	case took > lateMin:
		c.late = 1
	}
	t.counts[k].add(c)
	if k == toTheRefused {
		return err
	}
	if t.byAct[act] == nil {
		t.byAct[act] = &count{}
	}
	t.byAct[act].add(c)
	if (err != nil || c.late > 0) && len(t.samples) < samplesMax {
		t.samples = append(t.samples, fmt.Sprintf("%s after %q: %s, %s: %v after %v",
			began.Format("15:04:05.000"), act, kindNames[k], to, err, took.Round(time.Millisecond)))
	}
	return err
}

// snapshot gives the counts so far, and the sum over those who must not notice.
func (t *traffic) snapshot() (all [kinds]count, judged count) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, c := range t.counts {
		if kind(k) != toTheRefused {
			judged.add(c)
		}
	}
	return t.counts, judged
}

// awaitAll asks every target until all have answered.
func (t *traffic) awaitAll(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, to := range t.targets {
		for {
			asking, done := context.WithTimeout(ctx, time.Second)
			err := t.ask(asking, to)
			done()
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
