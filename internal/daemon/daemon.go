// Package daemon is the assembly of the proxy as a program: it turns a configuration into
// a running proxy with everything around it, and replaces that when the configuration
// changes. It stands above the root package, together with config, backend, rival and demo
// below it; internal/host is what stands below the root. The commands in cmd/sluice call
// it, and add only flags, help and exit statuses.
//
// Each type owns one thing:
//
//	Options    the flags and the file
//	process    what outlives a hand-over: the log and the claim to the rules (owner)
//	server     the proxy for one configuration, and its successor
//	kernel     the backend that serves, and what other backends left
//	node       the node's name and kernel settings
//	upstream   where Services come from
//	reports    what tells others about the proxy: events, health, metrics, HTTP servers
package daemon

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"

	"go.uber.org/zap"
	"k8s.io/component-base/version"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/logging"
	"github.com/sluice-proxy/sluice/internal/daemon/rival"
)

// Compatible is the kube-proxy release whose behavior Sluice follows, and Release the
// patch release that it was compared with.
const (
	Compatible = "v1.36"
	Release    = Compatible + ".3"
)

// Revision returns the commit that the program was built from, as the toolchain or the Makefile
// recorded it; empty if neither did.
func Revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	if commit := version.Get().GitCommit; !strings.HasPrefix(commit, "$") { // as it is without the Makefile
		return commit
	}
	return ""
}

// UsageError is a mistake in the flags or settings, which the user can correct.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the mistake.
func (e UsageError) Unwrap() error { return e.Err }

// process is what all servers of one process share.
type process struct {
	log   *logging.Logger
	owner *owner
	from  Upstream
	// socket answers questions, whichever server is running.
	socket *socket
	// forwarders serve in userspace mode, whichever server is running.
	forwarders *backend.Forwarders
	// offer is made when another process takes over from this one; nil before.
	offer *rival.Offer
	// sockets wait for the next server, in whatever mode.
	sockets *relay.Sockets
}

// Run serves until the context ends. It runs one server after the other: a server ends
// when its configuration changes so much that a successor has to take over. The options
// are loaded.
func Run(ctx context.Context, o *Options, from Upstream) error {
	limitGarbage()
	log, err := logging.New(o.Log())
	if err != nil {
		return err
	}
	o.announce(log.Logger)
	if o.Lab != nil {
		end, err := o.Lab.begin(ctx, o, log.Logger)
		if err != nil {
			return err
		}
		defer end()
	}
	p := &process{log: log, owner: claim(log.Logger), from: from, socket: newSocket(log.Logger), sockets: &relay.Sockets{}}
	p.forwarders = &backend.Forwarders{Sockets: p.sockets}
	defer p.owner.lock.Release()
	defer p.socket.close()
	defer p.sockets.Close()
	defer p.forwarders.Close()
	s, err := newServer(ctx, o, p)
	if err != nil {
		return err
	}
	for s != nil {
		err := s.run(ctx)
		s.end()
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		if s.successor != nil && ctx.Err() != nil {
			if err := s.successor.discard(); err != nil {
				log.Debug("cannot release what a prepared server opened", zap.Error(err))
			}
			break
		}
		s = s.successor
	}
	p.passOn()
	switch {
	case o.Sandboxed:
		log.Info("stopped; the sandbox and its rules are gone")
	case p.offer != nil:
		log.Info("stopped; another process serves")
	case p.forwarders.Any():
		log.Info("stopped; Services are refused until a proxy runs again")
	default:
		log.Info("stopped; the rules stay in the kernel")
	}
	return nil
}
