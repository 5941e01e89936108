// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// Usage is how full the kernel's connection table is, and the totals of its per-CPU counters.
type Usage struct {
	// Entries is the number in the network namespace. Limit is the most that each namespace may have; 0 means no limit.
	Entries, Limit uint64
	// The totals are those since the namespace was created, each the sum of one 32-bit counter per CPU.
	//
	// InsertFailed counts entries that lost a race against another entry for the same packets. Dropped counts packets
	// that got no entry, because the table was full or because of such a race. EarlyDropped counts unanswered
	// connections that the kernel deleted to make room, and ClashResolved races in which it dropped no packet.
	InsertFailed, Dropped, EarlyDropped, ClashResolved uint64
}

const (
	messageUsage = 5 // IPCTNL_MSG_CT_GET_STATS
	attrEntries  = 1 // CTA_STATS_GLOBAL_ENTRIES
	attrLimit    = 2 // CTA_STATS_GLOBAL_MAX_ENTRIES, Linux 4.18

	attrInsertFailed = 9  // CTA_STATS_INSERT_FAILED
	attrDropped      = 10 // CTA_STATS_DROP
	attrEarlyDropped = 11 // CTA_STATS_EARLY_DROP
	attrClash        = 14 // CTA_STATS_CLASH_RESOLVE, Linux 5.10
)

// ReadUsage reads the usage in a network namespace. It takes microseconds per CPU, regardless of the number of entries.
func ReadUsage(ctx context.Context, inside netlink.Inside) (u Usage, err error) {
	socket, err := open(inside)
	if err != nil {
		return u, err
	}
	defer func() { err = errors.Join(err, socket.Close()) }()
	err = ask(ctx, socket, messageUsage, unix.NLM_F_ACK, unix.AF_UNSPEC, nil, func(attrs []byte) error {
		u.Entries, u.Limit = uint64(netlink.Find(attrs, attrEntries).Uint32()), uint64(netlink.Find(attrs, attrLimit).Uint32())
		return nil
	})
	if err == nil {
		err = ask(ctx, socket, messageStatistics, unix.NLM_F_DUMP, unix.AF_UNSPEC, nil, u.add)
	}
	if err != nil {
		return u, fmt.Errorf("read the usage of the connection table: %w", err)
	}
	return u, nil
}

// add adds the counters of one CPU.
func (u *Usage) add(attrs []byte) error {
	for attr := range netlink.Attrs(attrs) {
		switch n := uint64(attr.Uint32()); attr.Type {
		case attrInsertFailed:
			u.InsertFailed += n
		case attrDropped:
			u.Dropped += n
		case attrEarlyDropped:
			u.EarlyDropped += n
		case attrClash:
			u.ClashResolved += n
		}
	}
	return nil
}
