package daemon

import (
	"context"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/rival"
)

// How userspace mode begins and ends without a new connection being lost.
//
// Another mode's rules translate a connection by its first packet, as far as the kernel tracks
// connections, and the kernel forgets how to with the last rule. So it is made to hold them
// (backend.HoldConnections) for some time around a change of the mode. A successor in userspace
// mode, be it a server of this process or another process, takes the listening sockets over.
const (
	// trackedAfter is how long connections to forwarders are tracked before rules come: one of
	// which no packet passes meanwhile is cut by them.
	trackedAfter = time.Second
	// settleMin and settleMax are how long former forwarders serve once others do: until their TCP
	// connections have ended, and new UDP clients have an answer.
	settleMin, settleMax = time.Second, 5 * time.Second
	// heldFor is how long translated connections go on in userspace mode.
	heldFor = 15 * time.Minute
	// passingMax bounds the wait for the rules of a process that takes over.
	passingMax = 30 * time.Second
)

// follow takes the forwarders over that have served until now. If this server forwards itself, they go on
// under its configuration.
func (s *server) follow() {
	if s.mode == config.ModeUserspace {
		s.former = &backend.Forwarders{}
		s.setARP(s.sysctls, s.log.Logger)
		// The source drops denied endpoints; this holds for any that reach a forwarder nevertheless.
		s.forwarders.Configure(s.addresses(), int(s.Sluice.Userspace.ConnectionsPerClient))
		return
	}
	s.former = s.forwarders.Take()
	s.former.Share(s.sockets, netip.Addr.IsLoopback) // where nftables mode listens, too
}

// receive takes over what another process that has served until now passes on.
func (s *server) receive(ctx context.Context) {
	passed, done, err := s.owner.lock.Receive()
	if err != nil {
		s.log.Info("cannot take sockets over; new connections may be refused until they are open again", zap.Error(err))
	}
	if done == nil {
		return
	}
	s.remote = done
	for _, socket := range passed {
		p, err := relay.PlaceOf(socket)
		if err != nil {
			s.log.Info("a socket that was passed on cannot be used", zap.Error(err))
			_ = socket.Close() // nothing was written
			continue
		}
		s.sockets.Put(p, socket)
	}
	s.log.Info("listening sockets taken over", zap.Int("sockets", len(passed)))
	if s.mode != config.ModeUserspace {
		s.track(ctx)
	}
}

// track lets connections to former forwarders go on when the rules of this mode come.
func (s *server) track(ctx context.Context) {
	if err := backend.HoldConnections(); err != nil {
		s.log.Info("connections that are open while the mode changes are cut", zap.Error(err))
		return
	}
	wait(ctx, trackedAfter)
}

// follows reports whether forwarders of another mode or process still serve.
func (s *server) follows() bool { return s.former.Any() || s.remote != nil }

// settle lets the last connections to former forwarders end. Until then, the local addresses stay.
// With them, a process of the node connects from the address of the Service itself; answers come
// back only if the rules masquerade it, which takes a range of pods.
func (s *server) settle(ctx context.Context) {
	if s.mode == config.ModeUserspace || !s.follows() || !s.settings.MasqueradesNode() {
		return
	}
	settle(ctx, s.former, settleMin, s.log.Logger)
}

// settle waits for replies to clients of forwarders that no rule points to. The conntrack entry of an earlier
// request would still lead a UDP client that reuses a source port here, so those entries are deleted first.
func settle(ctx context.Context, former *backend.Forwarders, atLeast time.Duration, log *zap.Logger) {
	began := time.Now()
	wait(ctx, atLeast)
	if err := former.Forget(ctx); err != nil {
		log.Info("cannot look for UDP flows of userspace mode; a client that reuses a source port may wait", zap.Error(err))
	}
	for former.Any() && ctx.Err() == nil && time.Since(began) < settleMax {
		wait(ctx, settleMin/10) // a datagram may not have been read yet
		if former.Busy() == 0 {
			return
		}
	}
}

// dismiss ends former forwarders. It may be called twice.
func (s *server) dismiss() {
	s.former.Close()
	if s.remote != nil {
		_ = s.remote.Close() // the other process sees its end
	}
}

// leave ends former forwarders once nothing leads to them. Node ports were open all the time.
func (s *server) leave(ctx context.Context) {
	settle(ctx, s.former, 0, s.log.Logger)
	if err := s.former.Leave(ctx); err != nil {
		s.log.Info("cannot look for UDP flows of userspace mode; a client that reuses a source port may wait", zap.Error(err))
	}
	s.dismiss()
}

// release ends what holds connections: at once, or in userspace mode when they had time to end.
// Replaced says that another mode's rules have been removed.
func (s *server) release(ctx context.Context, replaced bool) {
	if s.mode == config.ModeUserspace {
		if replaced {
			s.untranslate(ctx)
		}
		wait(ctx, heldFor)
	}
	if ctx.Err() != nil {
		return // the next server does it
	}
	if err := backend.ReleaseConnections(); err != nil {
		s.log.Info("cannot remove what has kept open connections", zap.Error(err))
	}
}

// untranslate lets UDP clients that keep their socket come here, once questions that the rules have
// translated are answered. The end of this server does not prevent it, since no later one would.
func (s *server) untranslate(ctx context.Context) {
	wait(ctx, settleMax)
	if err := s.forwarders.Untranslate(context.WithoutCancel(ctx)); err != nil {
		s.log.Info("cannot look for UDP flows that rules of another mode have translated", zap.Error(err))
	}
}

// offerSockets lets a process that waits for the end of this one take the listening sockets over.
func (s *server) offerSockets() {
	if s.mode != config.ModeUserspace || !s.owner.lock.Waited() {
		return
	}
	offer, err := rival.NewOffer()
	if err != nil {
		s.log.Info("new connections may be refused until the next process listens", zap.Error(err))
		return
	}
	s.offer = offer
}

// passOn passes the listening sockets on if that was offered, and serves until the other process
// does.
func (p *process) passOn() {
	if p.offer == nil {
		return
	}
	var copies relay.Sockets
	missed := p.forwarders.Share(&copies, func(netip.Addr) bool { return true })
	err := p.offer.Give(copies.Files(), passingMax)
	copies.Close()
	if err != nil || missed > 0 {
		p.log.Info("not all listening sockets were passed on", zap.Int("missed", missed), zap.Error(err))
	}
	p.forwarders.Drain()
	settle(context.Background(), p.forwarders, settleMin, p.log.Logger)
	if err := p.forwarders.Leave(context.Background()); err != nil {
		p.log.Info("cannot look for UDP flows of userspace mode; a client that reuses a source port may wait", zap.Error(err))
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
