// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"
)

// TestWatchServer_KnownBeforeConnecting: each connection of a client resolves the server's name, and changed addresses
// are reported once, before it is made. A failure is reported, but not the end of a context.
func TestWatchServer_KnownBeforeConnecting(t *testing.T) {
	var told []string
	tell := func(all []netip.Addr) { told = append(told, fmt.Sprint(all)) }
	expect := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(told, want) {
			t.Errorf("%s: told %v, want %v", what, told, want)
		}
		told = nil
	}
	a := WatchServer(&rest.Config{Host: "https://api.example:6443"})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	ready := make(chan struct{})
	var once sync.Once
	go func() {
		ended <- a.follow(ctx, func(all []netip.Addr) {
			tell(all)
			once.Do(func() { close(ready) })
		})
	}()
	<-ready
	expect("before the first connection", "[]")
	answer, refused := []netip.Addr{netip.MustParseAddr("203.0.113.6")}, syscall.ECONNREFUSED
	a.lookup = func(context.Context, string) ([]netip.Addr, error) { return answer, nil }
	a.dial = func(context.Context, string, string) (net.Conn, error) {
		tell(nil)
		return nil, refused
	}
	a.failed = func(_ context.Context, all []netip.Addr) { told = append(told, "failed "+fmt.Sprint(all)) }
	connect := func() {
		t.Helper()
		if _, err := a.connect(t.Context(), "tcp", "api.example:6443"); !errors.Is(err, refused) {
			t.Errorf("got %v", err)
		}
	}
	connect()
	expect("a first connection", "[203.0.113.6]", "[]", "failed [203.0.113.6]")
	connect()
	expect("another one", "[]", "failed [203.0.113.6]")
	answer = []netip.Addr{netip.MustParseAddr("::ffff:203.0.113.7"), netip.MustParseAddr("2001:db8::7")}
	a.dial = func(context.Context, string, string) (net.Conn, error) { return nil, context.Canceled }
	_, _ = a.connect(t.Context(), "tcp", "api.example:6443") // its error is the dialer's
	expect("the name has other addresses", "[203.0.113.7 2001:db8::7]")
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the end: %v", err)
	}
}

// TestWatchServer_ConfiguredAddress: an IP address in the configuration is known at once, and a name as soon as a real
// client connects by it.
func TestWatchServer_ConfiguredAddress(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	defer server.Close()
	config := &rest.Config{Host: strings.Replace(server.URL, "127.0.0.1", "localhost", 1)}
	a := WatchServer(config)
	if got := a.Known(); len(got) != 0 {
		t.Errorf("known before a connection: %v", got)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Get(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if got := a.Known(); !slices.Contains(got, netip.MustParseAddr("127.0.0.1")) {
		t.Errorf("known after a connection: %v", got)
	}
	for host, want := range map[string]string{"https://203.0.113.6:6443": "[203.0.113.6]", "https://[2001:db8::6]": "[2001:db8::6]", "203.0.113.6": "[203.0.113.6]"} {
		if got := fmt.Sprint(WatchServer(&rest.Config{Host: host}).Known()); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}
