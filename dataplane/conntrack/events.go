// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

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

// TableEvent is the kernel's announcement about a connection to a Service. The kernel sends counters with Ended only.
type TableEvent struct {
	Kind   EventKind
	Family service.Family
	Connection
	// Replied is set if packets of the other direction were seen.
	Replied bool
	// Key is the Service to which the client connects, and At the time at which the announcement arrived.
	Key service.Key
	At  time.Time
	// tuple is the connection's original tuple as netlink attributes.
	tuple []byte
}

// Groups of announcements (NFNLGRP_CONNTRACK_NEW, …_UPDATE, …_DESTROY).
const groupNew, groupUpdate, groupDestroy = 1, 2, 3

// ErrNoEvents means that the kernel does not announce connections.
var ErrNoEvents = errors.New("the kernel announces no connections, because net.netfilter.nf_conntrack_events is 0; set it to 1")

// CheckEvents returns ErrNoEvents if net.netfilter.nf_conntrack_events is 0.
func CheckEvents() error {
	if text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_events"); err == nil && strings.TrimSpace(string(text)) == "0" {
		return ErrNoEvents
	}
	return nil
}

// Entry identifies the connection's entry in the table.
type Entry struct {
	number uint32
	tuple  []byte
}

// Entry returns the identity of the connection.
func (e *TableEvent) Entry() Entry { return Entry{e.Number, e.tuple} }

// Delete deletes entries of a family. An entry that no longer exists is not an error.
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

// listener receives the kernel's announcements about connections.
type listener struct{ *netlink.Listener }

// Listen begins to listen, in the network namespace of the calling thread.
func Listen() (Announcer, error) {
	if err := CheckEvents(); err != nil {
		return nil, err
	}
	l, err := netlink.Listen(unix.NETLINK_NETFILTER, nil, groupNew, groupUpdate, groupDestroy)
	return listener{l}, err
}

// Run implements Announcer.
func (l listener) Run(each func(*TableEvent), lost func()) error {
	return l.Listener.Run(context.Background(), func(m netlink.Message) {
		got, ok := m.Netfilter(unix.NFNL_SUBSYS_CTNETLINK)
		if !ok {
			return
		}
		e := TableEvent{Family: service.IPv4, Connection: parseConnection(got.Attrs)}
		if got.Family == unix.NFPROTO_IPV6 {
			e.Family = service.IPv6
		}
		switch {
		case got.Kind == messageDelete:
			e.Kind = Ended
		case m.Flags&unix.NLM_F_CREATE == 0:
			e.Kind = Changed
		}
		e.Replied = netlink.Find(got.Attrs, attrStatus).Uint32()&statusReplied != 0
		e.tuple = netlink.Find(got.Attrs, attrOriginal).Data
		each(&e)
	}, lost)
}

// Closes reports whether the connection is in one of the states in which TCP connections end.
func (e *TableEvent) Closes() bool { return e.State == "TIME_WAIT" || e.State == "CLOSE" }
