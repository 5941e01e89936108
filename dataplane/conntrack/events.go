// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// EventKind is the kind of an event.
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
	// Identity identifies the entry for deletion.
	Identity Description
	// Key is the Service to which the client connects, and At the time at which the announcement arrived.
	Key service.Key
	At  time.Time
}

// Groups of announcements (NFNLGRP_CONNTRACK_NEW, …_UPDATE, …_DESTROY).
const groupNew, groupUpdate, groupDestroy = 1, 2, 3

// ErrNoEvents means that the kernel announces no connections.
var ErrNoEvents = errors.New("the kernel announces no connections, because net.netfilter.nf_conntrack_events is 0; set it to 1")

// CheckEvents returns ErrNoEvents if net.netfilter.nf_conntrack_events is 0.
func CheckEvents() error {
	if text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_events"); err == nil && strings.TrimSpace(string(text)) == "0" {
		return ErrNoEvents
	}
	return nil
}

// listener receives the kernel's announcements about connections.
type listener struct{ *netlink.Listener }

// Listen starts an Announcer in the network namespace of the calling thread.
func Listen() (Announcer, error) {
	if err := CheckEvents(); err != nil {
		return nil, err
	}
	l, err := netlink.Listen(unix.NETLINK_NETFILTER, nil, groupNew, groupUpdate, groupDestroy)
	return listener{l}, err
}

// Run implements Announcer.
func (l listener) Run(each func(*TableEvent), lost func()) error {
	var identity []byte // one buffer for all
	return l.Listener.Run(context.Background(), func(m netlink.Message) {
		got, ok := m.Netfilter(unix.NFNL_SUBSYS_CTNETLINK)
		if !ok {
			return
		}
		e := TableEvent{Family: service.IPv4, Connection: parse(got.Attrs)}
		if got.Family == unix.NFPROTO_IPV6 {
			e.Family = service.IPv6
		}
		switch {
		case got.Kind == messageDelete:
			e.Kind = Ended
		case m.Flags&unix.NLM_F_CREATE == 0:
			e.Kind = Changed
		}
		identity = Description(got.Attrs).appendIdentity(identity[:0])
		e.Identity = identity
		each(&e)
	}, lost)
}
