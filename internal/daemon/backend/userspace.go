package backend

import (
	"context"
	"errors"
	"fmt"
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
	mu       sync.Mutex
	byFamily service.PerFamily[*userspace.Forwarder]
}

// of returns the forwarder of a family, and makes it if there is none.
func (f *Forwarders) of(family service.Family, log *zap.Logger) (*userspace.Forwarder, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byFamily[family] != nil {
		return f.byFamily[family], nil
	}
	config, err := userspace.BoundsFor(relay.Config{
		Report: func(failed relay.Failure) {
			log.Warn("a connection could not be forwarded", zap.String("listener", failed.Listener), zap.Error(failed.Err))
		},
		Full: func(b relay.Bound) {
			log.Warn("a bound is reached: further TCP clients are reset, and UDP clients replace others",
				zap.String("listener", b.Listener), zap.Int("connections", b.Connections), zap.Int("sessions", b.Sessions),
				zap.Duration("said again after", time.Minute))
		},
	})
	if err != nil {
		return nil, err
	}
	f.byFamily[family] = userspace.NewForwarder(family, userspace.Config{Relay: config})
	return f.byFamily[family], nil
}

// Close ends all forwarders with their connections.
func (f *Forwarders) Close() {
	f.mu.Lock()
	all := f.byFamily
	f.byFamily = service.PerFamily[*userspace.Forwarder]{}
	f.mu.Unlock()
	for _, one := range all {
		if one != nil {
			one.Close()
		}
	}
}

// Userspace builds one domain per family whose listeners are those of the forwarders. It needs
// nothing of the kernel but routes.
func Userspace(forwarders *Forwarders, log *zap.Logger) ([]proxy.Domain, error) {
	return eachFamily[*sysctl.NoIPv6Error](log, false, func(family service.Family) (proxy.Domain, error) {
		if family == service.IPv6 {
			if err := (sysctl.Files{}).IPv6(); err != nil {
				return proxy.Domain{}, err
			}
		}
		forwarder, err := forwarders.of(family, log)
		if err != nil {
			return proxy.Domain{}, err
		}
		writer, err := userspace.NewWriter(forwarder, nil)
		if err != nil {
			return proxy.Domain{}, fmt.Errorf("userspace mode in %s: %w", family, err)
		}
		return proxy.Domain{
			Name: fmt.Sprintf("userspace/%s", family), Family: family,
			Renderer: userspace.NewRenderer(family), Writer: writer,
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
