package conntrack

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// EventKind says what happened to a connection.
type EventKind uint8

// The kinds of events.
const (
	Began EventKind = iota
	Changed
	Ended
)

// TableEvent is the kernel's announcement about a connection. It has counters only if it ended.
type TableEvent struct {
	Kind   EventKind
	Family service.Family
	Connection
	// Replied is set if packets of the other direction were seen.
	Replied bool
	// tuple is the connection's name, as attributes.
	tuple []byte
}

// Groups of announcements (NFNLGRP_CONNTRACK_NEW, …_UPDATE, …_DESTROY).
const groupNew, groupUpdate, groupDestroy = 1, 2, 3

// Events are the announcements about all connections of a network namespace. While it is open, the kernel makes a message
// for each connection that begins or ends and for each change of its state. Each and lost are called by Run only.
type Events struct {
	listener *netlink.Listener
	socket   *netlink.Socket
}

// ListenToEvents begins to listen, in the network namespace of the calling thread.
func ListenToEvents() (*Events, error) {
	listener, err := netlink.Listen(unix.NETLINK_NETFILTER, nil, groupNew, groupUpdate, groupDestroy)
	if err != nil {
		return nil, err
	}
	socket, err := netlink.Open(netlink.Config{Protocol: unix.NETLINK_NETFILTER})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return &Events{listener, socket}, nil
}

// ErrNoEvents means that the kernel does not announce connections.
var ErrNoEvents = errors.New("the kernel announces no connections, because net.netfilter.nf_conntrack_events is 0; set it to 1")

// CheckEvents returns ErrNoEvents if listening is useless.
func CheckEvents() error {
	if text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_events"); err == nil && strings.TrimSpace(string(text)) == "0" {
		return ErrNoEvents
	}
	return nil
}

// Kept returns a copy that is valid after the call.
func (e *TableEvent) Kept() TableEvent {
	kept := *e
	kept.tuple = slices.Clone(e.tuple)
	return kept
}

// Entry identifies the connection's entry in the table.
type Entry struct {
	number uint32
	tuple  []byte
}

// Entry returns the identity of the connection. The event must be Kept.
func (e *TableEvent) Entry() Entry { return Entry{e.Number, e.tuple} }

// Delete deletes entries of a family. One that is gone is no error.
func Delete(_ context.Context, family service.Family, entries []Entry) (err error) {
	n := &netfilter{family: family, inside: here}
	defer func() { err = errors.Join(err, n.close()) }()
	for part := range slices.Chunk(entries, removeBatch) {
		identities := make([][]byte, len(part))
		for i, e := range part {
			identities[i] = netlink.AppendUint32(netlink.AppendBytes(nil, attrOriginal|nested, e.tuple), attrID, e.number)
		}
		outcomes, err := n.remove(identities)
		if err != nil {
			return err
		}
		for _, outcome := range outcomes {
			if outcome != nil && !errors.Is(outcome, errGone) {
				return outcome
			}
		}
	}
	return nil
}

// Close ends listening.
func (e *Events) Close() error { return errors.Join(e.listener.Close(), e.socket.Close()) }

// Run calls each for every event, and lost if events were lost because too many came, until the context ends. It returns
// the context's cause. An event is valid during the call.
func (e *Events) Run(ctx context.Context, each func(*TableEvent), lost func()) error {
	return e.listener.Run(ctx, func(m netlink.Message) {
		got, ok := m.Netfilter(unix.NFNL_SUBSYS_CTNETLINK)
		if !ok {
			return
		}
		event := TableEvent{Family: service.IPv4, Connection: parseConnection(got.Attrs)}
		if got.Family == unix.NFPROTO_IPV6 {
			event.Family = service.IPv6
		}
		switch {
		case got.Kind == messageDelete:
			event.Kind = Ended
		case m.Flags&unix.NLM_F_CREATE == 0:
			event.Kind = Changed
		}
		event.Replied = netlink.Find(got.Attrs, attrStatus).Uint32()&statusReplied != 0
		event.tuple = netlink.Find(got.Attrs, attrOriginal).Data
		each(&event)
	}, lost)
}

// Read asks the kernel for the connection of an event as it is now. It returns false if there is none. Only the callback
// of Run may call it.
func (e *Events) Read(ctx context.Context, event *TableEvent) (c Connection, ok bool) {
	request, mark := netlink.BeginNetfilter(nil, unix.NFNL_SUBSYS_CTNETLINK, messageGet, unix.NLM_F_ACK, layouts[event.Family].protocol)
	request = netlink.AppendBytes(request, attrOriginal|nested, event.tuple)
	err := e.socket.Ask(ctx, netlink.Finish(request, mark), func(m netlink.Message) error {
		if got, is := m.Netfilter(unix.NFNL_SUBSYS_CTNETLINK); is {
			c, ok = parseConnection(got.Attrs), true
		}
		return nil
	})
	return c, ok && err == nil
}
