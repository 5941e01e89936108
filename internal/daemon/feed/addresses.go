// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sluice-proxy/sluice/source/kube"
)

// ServerAddresses records the addresses at which this process reaches its API server, including those of HTTP proxies:
// a Service must not take them away from the node. Any goroutine may use it.
type ServerAddresses struct {
	// failed, if set, is called with addresses that could not be connected to.
	failed func(context.Context, []netip.Addr)
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	dial   func(ctx context.Context, network, address string) (net.Conn, error)

	mu sync.Mutex
	// byHost are the addresses of each host name or address that was connected to.
	byHost map[string][]netip.Addr
	// changed is called with all of them, under the lock; it does not block.
	changed func([]netip.Addr)
}

// WatchServer returns the addresses of a client's API server. From now on the client resolves the
// server's name before each connection, and the addresses are known before it connects.
func WatchServer(client *rest.Config) *ServerAddresses {
	a := &ServerAddresses{
		lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
		dial:   (&net.Dialer{KeepAlive: kube.KeepAlive}).DialContext,
		byHost: make(map[string][]netip.Addr),
	}
	if server, _, err := rest.DefaultServerUrlFor(client); err == nil {
		if addr, err := netip.ParseAddr(server.Hostname()); err == nil {
			a.note(server.Hostname(), []netip.Addr{addr})
		}
	}
	client.Dial = a.connect
	return a
}

// connect records the addresses of a host, and opens a connection to it.
func (a *ServerAddresses) connect(ctx context.Context, network, address string) (net.Conn, error) {
	var found []netip.Addr
	if host, _, err := net.SplitHostPort(address); err == nil {
		// If the lookup fails, so does that of the dialer, which returns the error.
		if found, err = a.lookup(ctx, host); err == nil {
			a.note(host, found)
		}
	}
	conn, err := a.dial(ctx, network, address)
	if err != nil && !errors.Is(err, context.Canceled) && len(found) > 0 && a.failed != nil {
		// The attempt may have used up the time of the context.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), failedMax)
		defer cancel()
		a.failed(ctx, found)
	}
	return conn, err
}

// failedMax bounds the time of a call of failed.
const failedMax = time.Second

// note replaces the addresses of a host.
func (a *ServerAddresses) note(host string, addrs []netip.Addr) {
	plain := make([]netip.Addr, len(addrs))
	for i, addr := range addrs {
		plain[i] = addr.Unmap().WithZone("")
	}
	slices.SortFunc(plain, netip.Addr.Compare)
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Equal(plain, a.byHost[host]) {
		return
	}
	a.byHost[host] = plain
	if a.changed != nil {
		a.changed(a.all())
	}
}

// all returns all addresses. The caller has the lock.
func (a *ServerAddresses) all() (all []netip.Addr) {
	for _, addrs := range a.byHost {
		all = append(all, addrs...)
	}
	return all
}

// Known returns all addresses.
func (a *ServerAddresses) Known() []netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all()
}

// follow calls changed with all addresses, now and after each change, until the context ends. It follows for one
// caller at a time.
func (a *ServerAddresses) follow(ctx context.Context, changed func([]netip.Addr)) error {
	set := func(changed func([]netip.Addr)) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.changed = changed; changed != nil {
			changed(a.all())
		}
	}
	set(changed)
	defer set(nil)
	<-ctx.Done()
	return context.Cause(ctx)
}
