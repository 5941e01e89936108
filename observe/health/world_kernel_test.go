// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/observe/web"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// world is a host of its own, with two addresses of each family besides the loopback ones.
type world struct {
	*testing.T
	node *netns.Namespace
	// client makes a connection of its own for each request.
	client *http.Client
}

// The addresses of the host.
const (
	own4, second4 = "192.0.2.10", "198.51.100.10"
	own6, second6 = "2001:db8::10", "2001:db8:1::10"
)

// patience bounds what should come at once.
var patience = testenv.Patience

func newWorld(t *testing.T) *world {
	t.Helper()
	testenv.NeedsRoot(t)
	node, err := netns.New("node")
	must(t, err)
	t.Cleanup(func() {
		checkNobodyIsLeft(t)
		must(t, node.Close())
	})
	for _, text := range []string{own4, second4, own6, second6} {
		addr := netip.MustParseAddr(text)
		must(t, node.AddAddress("lo", netip.PrefixFrom(addr, addr.BitLen())))
	}
	transport := &http.Transport{DialContext: node.DialContext, DisableKeepAlives: true}
	return &world{T: t, node: node, client: &http.Client{Transport: transport, Timeout: patience}}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// checkNobodyIsLeft fails the test if a goroutine of a server outlives it. The
// goroutine of a connection that was cut may need a moment.
func checkNobodyIsLeft(t *testing.T) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		left := goroutines("net/http.(*conn)", "net/http.(*Server)", "health.(*Ports)", "health.(*outlet)")
		if left == "" {
			return
		}
		if time.Since(begin) > patience {
			t.Fatalf("left are\n%s", left)
		}
	}
}

// goroutines returns the stacks that contain one of the names.
func goroutines(names ...string) string {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var found []string
	for _, stack := range strings.Split(string(stacks), "\n\n") {
		for _, name := range names {
			if strings.Contains(stack, name) {
				found = append(found, stack)
				break
			}
		}
	}
	return strings.Join(found, "\n\n")
}

// run runs something until the test ends, or stop is called, which waits for it.
// It must end without an error.
func (w *world) run(body func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- body(ctx) }()
	stopped := false
	stop = func() {
		w.Helper()
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			must(w, err)
		case <-time.After(patience):
			w.Fatal("it does not stop")
		}
	}
	w.Cleanup(stop)
	return stop
}

// newPorts makes Ports that listen on the host.
func (w *world) newPorts(config PortsConfig) *Ports {
	p := NewPorts(config)
	p.listen = func(ctx context.Context, network, address string) (l net.Listener, err error) {
		err = w.node.Do(func() (err error) {
			if l, err = web.Listen(ctx, network, address); err != nil {
				err = fmt.Errorf("%w", err) // its text names the process that has the address, as seen from here
			}
			return err
		})
		return l, err
	}
	return p
}

// answered is what came back for a request.
type answered struct {
	status int
	header http.Header
	body   string
}

// get asks once.
func (w *world) get(url string) (answered, error) {
	r, err := w.client.Get(url)
	if err != nil {
		return answered{}, err
	}
	body, err := io.ReadAll(r.Body)
	_ = r.Body.Close() // it has been read
	return answered{r.StatusCode, r.Header, string(body)}, err
}

// eventually waits until something is so.
func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	for begin := time.Now(); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Since(begin) > patience {
			w.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// answers waits until a URL answers with a status, and returns the answer.
func (w *world) answers(url string, status int) answered {
	w.Helper()
	var a answered
	var err error
	for begin := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		if a, err = w.get(url); err == nil && a.status == status {
			return a
		}
		if time.Since(begin) > patience {
			w.Fatalf("GET %s: %d %v, want %d", url, a.status, err, status)
		}
	}
}

// closed reports whether no server listens at an address.
func (w *world) closed(address string) bool {
	c, err := w.node.DialContext(w.Context(), "tcp", address)
	if err == nil {
		_ = c.Close() // it was only a try
	}
	return err != nil
}

// take gives an address to another program.
func (w *world) take(network, address string) net.Listener {
	w.Helper()
	l, err := w.node.Listen(network, address)
	must(w, err)
	w.Cleanup(func() { _ = l.Close() }) // the test may have closed it
	return l
}
