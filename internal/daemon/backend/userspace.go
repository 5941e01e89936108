// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
)

// Forwarders are the forwarders of userspace mode, which outlive a reload of the configuration.
// The zero value has none. Any goroutine may use it.
type Forwarders struct {
	// Sockets are the listening sockets of a previous process or mode, which are used before new ones are opened.
	Sockets *relay.Sockets
	// policy is asked before each connection to an endpoint; nil allows all.
	policy atomic.Pointer[service.AddressPolicy]

	mu     sync.Mutex
	byName map[string]*userspace.Forwarder
	// registry is shared by all forwarders; nil if there are none.
	registry *userspace.Registry
}

// of returns the forwarder of a domain, and makes it if there is none.
func (f *Forwarders) of(name string, part userspace.Part, family service.Family, log *zap.Logger) (*userspace.Forwarder, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byName[name] != nil {
		return f.byName[name], nil
	}
	if f.byName == nil {
		bounds, err := userspace.BoundsFor(sayFull(log))
		if err != nil {
			return nil, err
		}
		bounds.Denied = sayDenied(log)
		f.byName = make(map[string]*userspace.Forwarder)
		f.registry = userspace.NewRegistry(bounds)
	}
	f.byName[name] = userspace.NewForwarder(part, family, userspace.Config{Registry: f.registry, Relay: relay.Config{
		Sockets: f.Sockets, MayDial: f.MayDial,
		Report: func(failed relay.Failure) {
			log.Warn("failed to forward connection", zap.String("domain", name), zap.String("listener", failed.Listener), zap.Error(failed.Err))
		},
	}})
	return f.byName[name], nil
}

// Configure changes which endpoints existing and later forwarders connect to, and how many connections one
// client address may have; 0 means the default. Open connections stay.
func (f *Forwarders) Configure(policy service.AddressPolicy, connectionsPerClient int) {
	f.policy.Store(&policy)
	if r := f.Registry(); r != nil {
		r.LimitClients(connectionsPerClient)
	}
}

// MayDial returns an error if the policy forbids connections to an endpoint.
func (f *Forwarders) MayDial(endpoint netip.Addr) error {
	if policy := f.policy.Load(); policy != nil {
		return policy.Check(endpoint)
	}
	return nil
}

// holders names the scope of each limit.
var holders = map[relay.Refusal]string{relay.ClientFull: "client", relay.PartFull: "Service", relay.TotalFull: "process"}

// sayFull returns a function that logs a limit that was reached.
func sayFull(log *zap.Logger) func(userspace.Full) {
	return func(b userspace.Full) {
		log := log.With(zap.Stringer("service", b.Port.Service), zap.String("port", b.Port.Name), zap.Stringer("client", b.Client),
			zap.String("scope", holders[b.Why]), zap.Int("open", b.Open), zap.Int("limit", b.Most),
			zap.Duration("repeatAfter", time.Minute))
		if b.Port.Protocol == service.UDP {
			log.Warn("UDP session limit reached; evicting the least active sessions")
		} else {
			log.Warn("TCP connection limit reached; resetting new connections")
		}
	}
}

// sayDenied returns a function that logs an endpoint that must not be dialed.
func sayDenied(log *zap.Logger) func(userspace.PortID, *relay.DeniedError) {
	return func(port userspace.PortID, denied *relay.DeniedError) {
		log.Warn("endpoint address is not allowed; not connecting to it", zap.Stringer("service", port.Service), zap.String("port", port.Name),
			zap.Stringer("endpoint", denied.Target), zap.Error(denied.Err), zap.Duration("repeatAfter", time.Minute))
	}
}

// Registry returns what the forwarders share; nil if there are none.
func (f *Forwarders) Registry() *userspace.Registry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.registry
}

// Stats calls visit with the numbers of each forwarder.
func (f *Forwarders) Stats(visit func(*relay.Stats)) {
	f.mu.Lock()
	all := slices.Collect(maps.Values(f.byName))
	f.mu.Unlock()
	for _, one := range all {
		visit(one.Stats())
	}
}

// Any reports whether there are forwarders.
func (f *Forwarders) Any() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.byName) > 0
}

// each calls visit with each open listener.
func (f *Forwarders) each(visit func(*relay.Listener)) {
	f.mu.Lock()
	all := slices.Collect(maps.Values(f.byName))
	f.mu.Unlock()
	for _, one := range all {
		one.Each(visit)
	}
}

// Share puts copies of the listening sockets at the chosen addresses into a pool, and returns how
// many could not be copied.
func (f *Forwarders) Share(pool *relay.Sockets, chosen func(netip.Addr) bool) (failed int) {
	f.each(func(l *relay.Listener) {
		if chosen(l.Place().At.Addr()) && l.Share(pool) != nil {
			failed++
		}
	})
	return failed
}

// Drain stops accepting clients, because another process has the listening sockets. Open connections continue.
func (f *Forwarders) Drain() { f.each((*relay.Listener).Drain) }

// Busy returns how many clients have an open TCP connection, or wait for an answer over UDP.
func (f *Forwarders) Busy() (clients int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.byName {
		clients += one.Stats().Connections.Load() + one.Stats().Unanswered.Load()
	}
	return clients
}

// Take moves the forwarders to another value, whose owner closes them. A server that forwards makes
// new ones from then on.
func (f *Forwarders) Take() *Forwarders {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := &Forwarders{Sockets: f.Sockets, byName: f.byName, registry: f.registry}
	f.byName, f.registry = nil, nil
	return taken
}

// Close ends all forwarders with their connections.
func (f *Forwarders) Close() {
	f.mu.Lock()
	all := f.byName
	f.byName, f.registry = nil, nil
	f.mu.Unlock()
	for _, one := range all {
		one.Close()
	}
}

// UserspaceOptions are the settings of userspace mode.
type UserspaceOptions struct {
	userspace.Settings
	// ExposeHostPorts accepts a kernel that cannot keep ports of the host from answering at addresses of
	// Services.
	ExposeHostPorts bool
	// AnswerARP leaves the sysctls about ARP as they are.
	AnswerARP bool
	// Sysctls are where kernel parameters are set.
	Sysctls sysctl.Files
	// Lacks receives the reason why a family is not served. It may be nil.
	Lacks *Lacks
	Log   *zap.Logger
}

// Userspace builds two domains per family, whose listeners are those of the forwarders. It needs
// routes and a table of nf_tables.
func Userspace(forwarders *Forwarders, o UserspaceOptions) (all []proxy.Domain, err error) {
	if !forwarders.Any() { // not again after a reload in the same mode
		o.Log.Warn("userspace mode does not enforce NetworkPolicy for connections to Services",
			zap.String("reason", "endpoints see an address of the node"))
	}
	say := o.Log
	for _, part := range []userspace.Part{userspace.Addresses, userspace.NodePorts} {
		domains, err := userspaceDomains(part, forwarders, o, say)
		say = zap.NewNop() // log a missing family only for the first part
		if err != nil {
			return nil, err
		}
		all = append(all, domains...)
	}
	return all, nil
}

// SetUserspace sets the kernel parameters that userspace mode needs, unless they are set already. Without them, the
// kernel answers ARP requests for a local address on every interface, so each node would claim load balancer addresses.
func SetUserspace(o UserspaceOptions) error {
	if o.AnswerARP {
		return nil
	}
	return ensure(o.Sysctls.Optional(), StrictARP(), func(c sysctl.Change) {
		o.Log.Info("sysctl value changed", zap.String("name", c.Name), zap.String("to", c.To))
	})
}

// guardFor returns the guard of a part; nil if it needs none, or if the kernel does not support it and o accepts that.
func guardFor(part userspace.Part, family service.Family, o UserspaceOptions) (userspace.Guard, error) {
	if part == userspace.NodePorts { // which are at addresses of the host itself
		return nil, nil
	}
	guard, err := nftkernel.NewGuard(family, nil)
	if err != nil {
		return nil, o.withoutGuard(err)
	}
	return guard, nil
}

// withoutGuard returns the error with which a start fails if no guard can be made; nil if the mode may start without.
func (o *UserspaceOptions) withoutGuard(err error) error {
	_, lacks := errors.AsType[*nftkernel.MissingError](err)
	switch {
	case !lacks:
		return err
	case !o.ExposeHostPorts:
		return &AdvisedError{
			fmt.Errorf("userspace mode cannot keep ports of the host from answering at addresses of Services: %w", err),
			"use a kernel that supports it, or set userspace.exposeHostPorts: true if every client " +
				"of a Service may reach the programs of this host that listen on all addresses",
		}
	}
	o.Log.Warn("host processes are reachable at Service addresses (userspace.exposeHostPorts)", zap.Error(err))
	return nil
}

func userspaceDomains(part userspace.Part, forwarders *Forwarders, o UserspaceOptions, say *zap.Logger) ([]proxy.Domain, error) {
	return eachFamily[*sysctl.NoIPv6Error](say, o.Lacks, false, func(family service.Family) (proxy.Domain, error) {
		if family == service.IPv6 {
			if err := (sysctl.Files{}).IPv6(); err != nil {
				return proxy.Domain{}, err
			}
		}
		name := fmt.Sprintf("%s/%s", part, family)
		guard, err := guardFor(part, family, o)
		if err != nil {
			return proxy.Domain{}, err
		}
		settings := o.Settings
		settings.Guarded = guard != nil
		forwarder, err := forwarders.of(name, part, family, o.Log)
		if err != nil {
			return proxy.Domain{}, err
		}
		writer, err := userspace.NewWriter(forwarder, guard, nil)
		if err != nil {
			return proxy.Domain{}, fmt.Errorf("userspace mode in %s: %w", family, err)
		}
		return proxy.Domain{
			Name: name, Family: family, Auxiliary: part == userspace.NodePorts, Awaited: true, Renderer: userspace.NewRenderer(part, family, settings), Writer: writer.Contract(),
		}, nil
	})
}

// Untranslate deletes the UDP flows to the forwarders' listeners that rules of another mode translated.
// Otherwise they would keep the endpoint that those rules chose.
func (f *Forwarders) Untranslate(ctx context.Context) error {
	served := f.servedUDP()
	_, err := deleteUDP(ctx, func(d *conntrack.Connection) bool { return d.Translated() && served[d.To] })
	return err
}

// Forget makes the kernel forget the UDP flows to and from the forwarders, and returns how many there were. The rules
// then apply to the next datagram of each client, even if it reuses a source port. A later reply of a forwarder begins
// another such flow, because the kernel takes it for a first datagram.
func (f *Forwarders) Forget(ctx context.Context) (deleted int, err error) {
	return forget(ctx, f.servedUDP())
}

// Leave closes the forwarders, and makes the kernel forget their UDP flows.
func (f *Forwarders) Leave(ctx context.Context) error {
	served := f.servedUDP()
	f.Close()
	_, err := forget(ctx, served)
	return err
}

func forget(ctx context.Context, served map[netip.AddrPort]bool) (deleted int, err error) {
	if len(served) == 0 {
		return 0, nil
	}
	return deleteUDP(ctx, func(d *conntrack.Connection) bool { return !d.Translated() && (served[d.From] || served[d.To]) })
}

// servedUDP returns where the forwarders listen for datagrams.
func (f *Forwarders) servedUDP() map[netip.AddrPort]bool {
	served := make(map[netip.AddrPort]bool)
	f.each(func(l *relay.Listener) {
		if p := l.Place(); p.Protocol == service.UDP {
			served[p.At] = true
		}
	})
	return served
}

func deleteUDP(ctx context.Context, stale func(*conntrack.Connection) bool) (deleted int, err error) {
	for _, family := range service.Families {
		n, failed := conntrack.DeleteUDP(ctx, family, stale, nil)
		deleted, err = deleted+n, errors.Join(err, failed)
	}
	return deleted, err
}

// ReleaseAddresses removes those of the given addresses that userspace mode made local. If a Service at the API
// server's address was deleted while no proxy ran, that address is still local, and the API server is unreachable
// until this call. The next audit restores an address that a Service still needs.
func ReleaseAddresses(ctx context.Context, addrs []netip.Addr) {
	for _, family := range service.Families {
		of := slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return service.FamilyOf(a.Unmap()) != family })
		_ = userspace.Release(ctx, family, of) // the next failed connection tries again
	}
}
