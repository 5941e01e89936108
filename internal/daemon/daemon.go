// SPDX-License-Identifier: Apache-2.0

// Package daemon runs the proxy process: it turns a configuration into a running proxy with its HTTP servers, metrics
// and events, and replaces them when the configuration changes. The packages below it contain code that other commands
// share, or that needs no running proxy:
//
//	config      flags and files
//	setup       the options, the backend and the node of a configuration
//	feed        where Services come from
//	inspection  answers about a running proxy
//	part        the type of a component of the process: traces, flows, selftest, balance, offload and others
//	preflight, plan, offline   the commands that need no running proxy
//
// Here, each type owns one thing:
//
//	Options        the flags and the file, and hooks
//	lifetime       what outlives a server: the log and the claim to the rules (owner)
//	server         the proxy for one configuration, and its successor
//	parts          the components around the proxy, as a list: a new one needs a directory and a line in the list
//	handover       how a server follows another one
//	portConflicts  the addresses of the HTTP servers that other processes hold
package daemon

import (
	"context"
	"errors"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/feed"
	"github.com/sluice-proxy/sluice/internal/daemon/inspection"
	"github.com/sluice-proxy/sluice/internal/daemon/logging"
	"github.com/sluice-proxy/sluice/internal/daemon/peer"
	"github.com/sluice-proxy/sluice/observe/events"
)

// lifetime is what all servers of one process share.
type lifetime struct {
	log   *logging.Logger
	owner *owner
	open  feed.Opener
	// socket answers questions, whichever server is running.
	socket *inspection.Socket
	// forwarders serve in userspace mode, whichever server is running.
	forwarders *backend.Forwarders
	// tallies contain the counts of nftables mode, whichever server is running.
	tallies *backend.Tallies
	// events are remembered, whichever server is running.
	events *events.Memory
	// offer is made when another process takes over from this one; nil before.
	offer *peer.Offer
	// sockets are the listening sockets that the next server takes over, in any mode.
	sockets   *relay.Sockets
	readiness *readiness
	unlanded  unlanded
	others    others
}

// newLifetime claims the rules of this network namespace.
func newLifetime(log *logging.Logger, open feed.Opener, stateDir string) *lifetime {
	sockets := &relay.Sockets{}
	return &lifetime{
		log: log, owner: claim(log.Logger), open: open, socket: inspection.NewSocket(log.Logger),
		forwarders: &backend.Forwarders{Sockets: sockets}, tallies: backend.NewTallies(), events: &events.Memory{}, sockets: sockets,
		readiness: newReadiness(stateDir, log.Logger), unlanded: unlanded{filepath.Join(stateDir, unlandedFile), log.Logger},
	}
}

// end releases what the process holds.
func (l *lifetime) end() {
	l.forwarders.Close()
	l.sockets.Close()
	l.socket.Close()
	l.owner.lock.Release()
}

// Run serves until the context ends. It runs one server after the other: a server ends when its configuration changes
// and a successor takes over. The options must be loaded.
func Run(ctx context.Context, o *Options, open feed.Opener) error {
	limitGarbage()
	log, err := logging.New(o.Log())
	if err != nil {
		return err
	}
	o.Announce(log.Logger)
	if o.Lab != nil {
		end, err := o.Lab.begin(ctx, o, log.Logger)
		if err != nil {
			return err
		}
		defer end()
	}
	life := newLifetime(log, open, o.Sluice.State.Dir)
	defer life.end()
	s, err := newServer(ctx, o, life)
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
				log.Debug("cannot close resources of a prepared server", zap.Error(err))
			}
			break
		}
		s = s.successor
	}
	life.passOn()
	log.Info("stopped; " + life.leaves(o.Sandboxed))
	return nil
}

// leaves describes what remains when the process ends.
func (l *lifetime) leaves(sandboxed bool) string {
	switch {
	case sandboxed:
		return "the sandbox and its rules were removed"
	case l.offer != nil:
		return "another process serves"
	case l.forwarders.Any():
		return "connections to Services fail until a proxy runs again"
	default:
		return "the rules remain in the kernel"
	}
}
