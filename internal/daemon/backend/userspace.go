package backend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/service"
)

// Forwarders are the forwarders of userspace mode, which outlive a hand-over inside the process.
// The zero value has none. Any goroutine may use it.
type Forwarders struct {
	// Sockets of a former process or mode are used before new ones are opened; nil for none.
	Sockets *relay.Sockets

	mu     sync.Mutex
	byName map[string]*userspace.Forwarder
	// registry and access are those of all of them; nil if there are none.
	registry *userspace.Registry
	access   *userspace.AccessLog
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
		f.byName = make(map[string]*userspace.Forwarder)
		f.access = accessLog(log)
		f.registry = userspace.NewRegistry(bounds, f.access)
	}
	f.byName[name] = userspace.NewForwarder(part, family, userspace.Config{Registry: f.registry, Relay: relay.Config{
		Sockets: f.Sockets,
		Report: func(failed relay.Failure) {
			log.Warn("a connection could not be forwarded", zap.String("domain", name), zap.String("listener", failed.Listener), zap.Error(failed.Err))
		},
	}})
	return f.byName[name], nil
}

// sayFull returns a function that logs a bound.
func sayFull(log *zap.Logger) func(userspace.Full) {
	return func(b userspace.Full) {
		bound := "Service"
		if b.Total {
			bound = "process"
		}
		log := log.With(zap.Stringer("service", b.Port.Service), zap.String("port", b.Port.Name), zap.String("bound of the", bound),
			zap.Int("open", b.Open), zap.Int("most", b.Most), zap.Duration("said again after", time.Minute))
		if b.Port.Protocol == service.UDP {
			log.Warn("a bound is reached: further UDP clients replace the least active ones")
		} else {
			log.Warn("a bound is reached: further TCP clients are reset")
		}
	}
}

// accessLog returns a log for connections that have ended. Listeners say whether theirs belong there.
func accessLog(log *zap.Logger) *userspace.AccessLog {
	return userspace.NewAccessLog(func(e userspace.Ended) {
		log.Info("connection ended", zap.Stringer("service", e.Port.Service), zap.String("port", e.Port.Name),
			zap.Stringer("client", e.Client), zap.Stringer("frontend", e.Place), zap.Stringer("endpoint", e.Target),
			zap.Uint64("toEndpoint", e.ToTargets.Load()), zap.Uint64("toClient", e.ToClients.Load()), zap.Duration("took", e.Took))
	}, func(connections uint64) {
		log.Warn("connections ended faster than they can be logged; the access log lacks some", zap.Uint64("connections", connections))
	})
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

// Share puts copies of the listening sockets into a pool: those at addresses that are chosen. It
// returns how many could not be copied.
func (f *Forwarders) Share(pool *relay.Sockets, chosen func(netip.Addr) bool) (failed int) {
	f.each(func(l *relay.Listener) {
		if chosen(l.Place().At.Addr()) && l.Share(pool) != nil {
			failed++
		}
	})
	return failed
}

// Drain takes no more clients: another process has the listening sockets. Connections go on.
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
	taken := &Forwarders{Sockets: f.Sockets, byName: f.byName, registry: f.registry, access: f.access}
	f.byName, f.registry, f.access = nil, nil, nil
	return taken
}

// Close ends all forwarders with their connections.
func (f *Forwarders) Close() {
	f.mu.Lock()
	all, access := f.byName, f.access
	f.byName, f.registry, f.access = nil, nil, nil
	f.mu.Unlock()
	for _, one := range all {
		one.Close()
	}
	if access != nil {
		access.Close()
	}
}

// Userspace builds two domains per family, whose listeners are those of the forwarders. It needs
// nothing of the kernel but routes.
func Userspace(forwarders *Forwarders, settings userspace.Settings, log *zap.Logger) (all []proxy.Domain, err error) {
	say := log
	for _, part := range []userspace.Part{userspace.Addresses, userspace.NodePorts} {
		domains, err := userspaceDomains(part, forwarders, settings, log, say)
		say = zap.NewNop() // of a family that is missing, once
		if err != nil {
			return nil, err
		}
		all = append(all, domains...)
	}
	return all, nil
}

func userspaceDomains(part userspace.Part, forwarders *Forwarders, settings userspace.Settings, log, say *zap.Logger) ([]proxy.Domain, error) {
	return eachFamily[*sysctl.NoIPv6Error](say, false, func(family service.Family) (proxy.Domain, error) {
		if family == service.IPv6 {
			if err := (sysctl.Files{}).IPv6(); err != nil {
				return proxy.Domain{}, err
			}
		}
		name := fmt.Sprintf("%s/%s", part, family)
		forwarder, err := forwarders.of(name, part, family, log)
		if err != nil {
			return proxy.Domain{}, err
		}
		writer, err := userspace.NewWriter(forwarder, nil)
		if err != nil {
			return proxy.Domain{}, fmt.Errorf("userspace mode in %s: %w", family, err)
		}
		return proxy.Domain{
			Name: name, Family: family, Auxiliary: part == userspace.NodePorts, Awaited: true, Renderer: userspace.NewRenderer(part, family, settings), Writer: writer,
		}, nil
	})
}

// Untranslate cuts the UDP flows to the listeners of the forwarders that the rules of another mode
// have translated: they would stay with an endpoint of then.
func (f *Forwarders) Untranslate(ctx context.Context) error {
	served := f.servedUDP()
	return deleteUDP(ctx, func(d conntrack.Direction) bool { return d.Translated && served[d.To] })
}

// Leave closes the forwarders, and makes the kernel forget the UDP flows that they have served. It
// takes a late answer for the first datagram of a flow, and would lead a client that asks from the
// same port again to a forwarder that is not there.
func (f *Forwarders) Leave(ctx context.Context) error {
	served := f.servedUDP()
	f.Close()
	if len(served) == 0 {
		return nil
	}
	return deleteUDP(ctx, func(d conntrack.Direction) bool { return !d.Translated && (served[d.From] || served[d.To]) })
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

func deleteUDP(ctx context.Context, stale func(conntrack.Direction) bool) error {
	var failed []error
	for _, family := range service.Families {
		_, err := conntrack.DeleteUDP(ctx, family, stale, nil)
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// CleanUpUserspace removes the local addresses of userspace mode, and calls told for each family
// with how many there were. With dry it only counts them.
func CleanUpUserspace(ctx context.Context, dry bool, told func(family service.Family, addresses int)) error {
	var failed []error
	for _, family := range service.Families {
		found, err := userspace.CleanUp(ctx, family, dry)
		told(family, found)
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}
