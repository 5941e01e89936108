package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// measure measures one mode once.
func measure(ctx context.Context, s settings, mode string) (one sample, err error) {
	err = rig.InFolder("forward", func(dir string) (err error) {
		r, err := newRoom(ctx, s.sluice, mode, dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.close()) }()
		if err := r.connect(ctx, s.connections, &one); err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		if err := r.stream(ctx, s.stream, &one); err != nil {
			return fmt.Errorf("stream: %w", err)
		}
		if err := r.killed(ctx, mode, s.load, &one); err != nil {
			return fmt.Errorf("killed: %w", err)
		}
		return nil
	})
	return one, err
}

func (r *room) connect(ctx context.Context, n int, one *sample) error {
	var all []time.Duration
	for range n {
		began := time.Now()
		if _, err := r.client.Ask(ctx, "tcp", serviceAt); err != nil {
			return err
		}
		all = append(all, time.Since(began))
	}
	one.connectMedian, one.connectWorst = rig.Percentile(all, 50), rig.Percentile(all, 99)
	return nil
}

func (r *room) stream(ctx context.Context, d time.Duration, one *sample) (err error) {
	sink, err := r.pods.Listen("tcp", sinkAt.String())
	if err != nil {
		return err
	}
	received := make(chan int64, 1)
	go func() {
		defer close(received)
		c, err := sink.Accept()
		if err != nil {
			return // no client connected; the client reports the cause
		}
		n, _ := io.Copy(io.Discard, c) // the number is what counts
		_ = c.Close()
		received <- n
	}()
	defer func() { err = errors.Join(err, sink.Close()) }()
	c, err := r.client.DialContext(ctx, "tcp", streamAt.String())
	if err != nil {
		return err
	}
	busy, began := rig.Busy(), time.Now()
	proxy, err := rig.Used(r.proxy.PID())
	if err != nil {
		return err
	}
	chunk := make([]byte, 256<<10)
	for time.Since(began) < d && err == nil {
		_, err = c.Write(chunk)
	}
	if err = errors.Join(err, c.Close()); err != nil {
		return err
	}
	n := float64(<-received)
	took := time.Since(began)
	if n == 0 {
		return errors.New("nothing arrived")
	}
	used, err := rig.Used(r.proxy.PID())
	perGB := func(t time.Duration) time.Duration { return time.Duration(float64(t) / (n / 1e9)) }
	one.bytes = n / took.Seconds()
	one.processor, one.proxy = perGB(rig.Busy()-busy), perGB(used.Minus(proxy).Sum())
	return err
}

// clients is how many connect at the same time in killed.
const clients = 8

func (r *room) killed(ctx context.Context, mode string, d time.Duration, one *sample) error {
	var mu sync.Mutex
	var targets []netns.Target
	for range clients {
		targets = append(targets, netns.Target{Network: "tcp", Addr: serviceAt})
	}
	load, err := netns.StartLoad(ctx, netns.LoadConfig{
		Client: r.client, Targets: targets, Pause: 2 * time.Millisecond, Patience: 3 * time.Second,
		Note: func(e netns.Exchange) {
			mu.Lock()
			defer mu.Unlock()
			one.attempted++
			if e.Err != nil {
				one.lost++
				if op, ok := errors.AsType[*net.OpError](e.Err); ok && op.Op == "dial" {
					one.unaccepted++
				}
			}
		},
	})
	if err != nil {
		return err
	}
	defer load.Stop()
	for _, do := range []func() error{
		func() error { return nil },
		func() error { return r.Leave(endpoints[1]) },
		func() error { return r.describe(endpoints[0]) },
	} {
		if err := do(); err != nil {
			return err
		}
		if !rig.Sleep(ctx, d/3) {
			return ctx.Err()
		}
	}
	if mode != "userspace" {
		return nil
	}
	// The proxy has accepted every client. It knows for whom no endpoint has.
	one.unaccepted, err = r.unreachable(ctx)
	return err
}

// unreachable returns the proxy's count of clients whose connection no endpoint has accepted.
func (r *room) unreachable(ctx context.Context) (n int, err error) {
	text, err := rig.Get(ctx, r.node, "http://127.0.0.1:10249/metrics")
	if err != nil {
		return 0, err
	}
	const name = `sluice_relay_refused_connections_total{reason="unreachable"} `
	_, rest, found := strings.Cut(string(text), "\n"+name)
	if !found {
		return 0, errors.New("the proxy does not count")
	}
	value, _, _ := strings.Cut(rest, "\n")
	return strconv.Atoi(value)
}
