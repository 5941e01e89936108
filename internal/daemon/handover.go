// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"io"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/peer"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/proxy"
)

// How userspace mode begins and ends without a new connection being lost.
//
// Another mode's rules translate a connection at its first packet, if the kernel tracks connections. The kernel stops
// translating it when the last such rule is removed. So Sluice preserves connections (backend.PreserveConnections) for
// some time around a change of the mode. The listening sockets pass to the next server of this process, or to the next
// process.
const (
	// trackedAfter is how long the kernel tracks connections to forwarders before rules are written. The rules cut a
	// connection that carries no packet in this time.
	trackedAfter = time.Second
	// settleMin and settleMax bound how long previous forwarders serve after new connections go elsewhere: until their
	// TCP connections have ended, and new UDP clients have a reply.
	settleMin, settleMax = time.Second, 5 * time.Second
	// heldFor is how long userspace mode preserves connections that another mode's rules translated.
	heldFor = 15 * time.Minute
	// passingMax bounds the wait for the rules of a process that takes over.
	passingMax = 30 * time.Second
)

// handover lets a server take over from the previous server or process, and the next one from this server.
type handover struct {
	options *Options
	life    *lifetime
	mode    setup.Mode
	node    proxy.NodeSettings
	sysctls sysctl.Files
	log     *zap.Logger
	// former are the forwarders of the previous server, which serve until the rules of this one are applied; empty in
	// userspace mode.
	former *backend.Forwarders
	// remote is the connection to the previous process, which serves until the connection is closed; nil without one.
	remote io.Closer
}

// follow takes over the forwarders of the previous server. If this server is in userspace mode too, they continue with
// its configuration.
func (h *handover) follow() {
	if h.mode.Forwards {
		h.former = &backend.Forwarders{}
		h.options.SetARP(h.sysctls, h.log)
		// The source drops denied endpoints; this check catches any that reach a forwarder nevertheless.
		h.life.forwarders.Configure(h.options.Addresses(), int(h.options.Sluice.Userspace.ConnectionsPerClient))
		return
	}
	h.former = h.life.forwarders.Take()
	h.former.Share(h.life.sockets, netip.Addr.IsLoopback) // where nftables mode listens, too
}

// receive takes over the listening sockets that the previous process passes on.
func (h *handover) receive(ctx context.Context) {
	passed, done, err := h.life.owner.lock.Receive()
	if err != nil {
		h.log.Info("cannot receive listening sockets; new connections fail until they are reopened", zap.Error(err))
	}
	if done == nil {
		return
	}
	h.remote = done
	for _, socket := range passed {
		p, err := relay.PlaceOf(socket)
		if err != nil {
			h.log.Info("cannot use a received socket", zap.Error(err))
			_ = socket.Close() // nothing was written
			continue
		}
		h.life.sockets.Put(p, socket)
	}
	h.log.Info("received listening sockets from the previous process", zap.Int("sockets", len(passed)))
	if !h.mode.Forwards {
		h.track(ctx)
	}
}

// trackFormer preserves connections to the forwarders of the previous server.
func (h *handover) trackFormer(ctx context.Context) {
	if h.former.Any() {
		h.track(ctx)
	}
}

// track preserves connections to previous forwarders when the rules of this mode are written.
func (h *handover) track(ctx context.Context) {
	if err := backend.PreserveConnections(); err != nil {
		h.log.Info("cannot preserve open connections across the mode change; closing them", zap.Error(err))
		return
	}
	sleep.For(ctx, trackedAfter)
}

// follows reports whether forwarders of another mode or process still serve.
func (h *handover) follows() bool { return h.former.Any() || h.remote != nil }

// settle lets the last connections to previous forwarders end. Until then, the local addresses stay. With them, a
// process of the node connects from the Service's own address. It gets replies only if the rules masquerade that
// address, which needs a range of pods.
func (h *handover) settle(ctx context.Context) {
	if h.mode.Forwards || !h.follows() || !h.node.MasqueradesNode() {
		return
	}
	settle(ctx, h.former, settleMin, false, h.log)
}

// settle waits for replies to clients of forwarders that no rule points to. conntrack entries of earlier requests, and
// those that a reply makes after the rules were written, would still send a UDP client that reuses a source port to
// these forwarders. So settle deletes them until there are none. shared means that another process serves new clients
// at the same sockets, so there may always be some.
func settle(ctx context.Context, former *backend.Forwarders, atLeast time.Duration, shared bool, log *zap.Logger) {
	began := time.Now()
	sleep.For(ctx, atLeast)
	var failed error
	for former.Any() && ctx.Err() == nil && time.Since(began) < settleMax {
		sleep.For(ctx, settleMin/10) // a datagram may not have been read yet
		busy := former.Busy() > 0    // read first: a later reply makes another entry
		var deleted int
		if deleted, failed = former.Forget(ctx); !busy && (deleted == 0 || shared) {
			break
		}
	}
	if failed != nil {
		log.Info("cannot look for UDP flows of userspace mode; a client that reuses a source port may wait", zap.Error(failed))
	}
}

// dismiss ends former forwarders. It may be called twice.
func (h *handover) dismiss() {
	h.former.Close()
	if h.remote != nil {
		_ = h.remote.Close() // the other process sees its end
	}
}

// leave ends previous forwarders once no rule points to them. Node ports were open all the time.
func (h *handover) leave(ctx context.Context) {
	settle(ctx, h.former, 0, false, h.log)
	if err := h.former.Leave(ctx); err != nil {
		h.log.Info("cannot look for UDP flows of userspace mode; a client that reuses a source port may wait", zap.Error(err))
	}
	h.dismiss()
}

// release stops preserving connections: immediately, or in userspace mode when they had time to end. replaced means
// that another mode's rules have been removed.
func (h *handover) release(ctx context.Context, replaced bool) {
	if h.mode.Forwards {
		if replaced {
			h.untranslate(ctx)
		}
		sleep.For(ctx, heldFor)
	}
	if ctx.Err() != nil {
		return // the next server does it
	}
	if err := backend.StopPreserving(); err != nil {
		h.log.Info("failed to remove the connection-preservation table", zap.Error(err))
	}
}

// untranslate sends UDP clients that keep their socket to the forwarders, once requests that the rules translated have
// replies. It runs even if this server ends, because no later server does it.
func (h *handover) untranslate(ctx context.Context) {
	sleep.For(ctx, settleMax)
	if err := h.life.forwarders.Untranslate(context.WithoutCancel(ctx)); err != nil {
		h.log.Info("cannot look for UDP flows that rules of another mode translated", zap.Error(err))
	}
}

// offerSockets lets a process that waits for the end of this one take the listening sockets over.
func (h *handover) offerSockets() {
	if !h.mode.Forwards || !h.life.owner.lock.Waited() {
		return
	}
	offer, err := peer.NewOffer()
	if err != nil {
		h.log.Info("cannot hand over listening sockets; new connections fail until the next process listens", zap.Error(err))
		return
	}
	h.life.offer = offer
}

// passOn passes the listening sockets on if offerSockets made an offer, and serves until the other process does.
func (l *lifetime) passOn() {
	if l.offer == nil {
		return
	}
	var copies relay.Sockets
	missed := l.forwarders.Share(&copies, func(netip.Addr) bool { return true })
	err := l.offer.Give(copies.Files(), passingMax)
	copies.Close()
	if err != nil || missed > 0 {
		l.log.Info("failed to hand over all listening sockets", zap.Int("missed", missed), zap.Error(err))
	}
	l.forwarders.Drain()
	settle(context.Background(), l.forwarders, settleMin, true, l.log.Logger)
	if err := l.forwarders.Leave(context.Background()); err != nil {
		l.log.Info("cannot look for UDP flows of userspace mode; a client that reuses a source port may wait", zap.Error(err))
	}
}
