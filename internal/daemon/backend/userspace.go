package backend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/service"
)

// Forwarders are the forwarders of userspace mode, which outlive a hand-over inside the process.
// The zero value has none. Any goroutine may use it.
type Forwarders struct {
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
	config, err := userspace.BoundsFor(relay.Config{
		Report: func(failed relay.Failure) {
			log.Warn("a connection could not be forwarded", zap.String("domain", name), zap.String("listener", failed.Listener), zap.Error(failed.Err))
		},
		Full: func(b relay.Bound) {
			log.Warn("a bound is reached: further TCP clients are reset, and UDP clients replace others",
				zap.String("domain", name), zap.String("listener", b.Listener), zap.Int("connections", b.Connections), zap.Int("sessions", b.Sessions),
				zap.Duration("said again after", time.Minute))
		},
	})
	if err != nil {
		return nil, err
	}
	if f.byName == nil {
		f.byName = make(map[string]*userspace.Forwarder)
		f.access = accessLog(log)
		f.registry = userspace.NewRegistry(f.access)
	}
	f.byName[name] = userspace.NewForwarder(part, family, userspace.Config{Relay: config, Registry: f.registry})
	return f.byName[name], nil
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

// Take moves the forwarders to another value, whose owner closes them. A server that forwards makes
// new ones from then on.
func (f *Forwarders) Take() *Forwarders {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := &Forwarders{byName: f.byName, registry: f.registry, access: f.access}
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
