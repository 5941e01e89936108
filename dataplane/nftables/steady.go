package nftables

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// A reading takes many requests, and a set with many elements many datagrams. The
// kernel shows each as the tables are at that moment, and says of a list of chains
// or rules that it was interrupted (NLM_F_DUMP_INTR), but never of a list of elements.
//
// Invariant: what a reading gives is the table as it was at one moment, or an
// error that matches netlink.ErrInterrupted.

// readAttempts is how often a reading is begun that somebody's changes interrupt.
const readAttempts = 5

// steadily reads until nothing has changed meanwhile. Most of the time the
// generation says so. It counts what is done to all tables of the namespace, though:
// the other family's writes, and those of a stranger who may never rest. So from the
// second attempt on, announcements tell whether our own table was concerned.
func (r *reader) steadily(ctx context.Context, read func() error) error {
	for attempt := 1; ; attempt++ {
		look := r.sameGeneration
		if attempt > 1 && r.listen != nil {
			look = r.unannounced
		}
		err := look(ctx, read)
		if !errors.Is(err, netlink.ErrInterrupted) || attempt == readAttempts {
			return err
		}
	}
}

// sameGeneration reads, and fails when any table has changed meanwhile.
func (r *reader) sameGeneration(ctx context.Context, read func() error) error {
	before, err := r.generation(ctx)
	if err != nil {
		return err
	}
	if err := read(); err != nil {
		return err
	}
	after, err := r.generation(ctx)
	if err == nil && after != before {
		err = netlink.ErrInterrupted
	}
	return err
}

// unannounced reads, and fails when a change of our table was announced meanwhile, or
// so many changes that some may be missing.
func (r *reader) unannounced(ctx context.Context, read func() error) error {
	listener, err := r.listen()
	if err != nil {
		return r.sameGeneration(ctx, read) // stricter than need be
	}
	err = read()
	touched := false
	if err == nil {
		err = r.passCommits()
	}
	if err == nil {
		err = listener.Pending(func(m netlink.Netfilter) {
			touched = touched || m.Family == r.d.protocol && netlink.Find(m.Attrs, tableAttr).Text() == TableName
		}, func() { touched = true })
	}
	if err == nil && touched {
		err = netlink.ErrInterrupted
	}
	return errors.Join(err, listener.Close())
}

// tableAttr is the attribute with the table's name, with which every message about
// a table's content begins.
const tableAttr = 1

// passCommits waits until transactions that are under way have been announced: the
// kernel holds a lock from a transaction's beginning until then, and takes it for
// this one too, which asks for what cannot be.
func (r *reader) passCommits() error {
	if _, err := deleteNamed(r.socket, r.d, noTable); err != nil {
		return fmt.Errorf("wait for other transactions: %w", err)
	}
	return nil
}

// noTable is a name that no table has.
const noTable = "sluice-no-table"

// generation counts the transactions that have changed the tables of the network
// namespace, of any family and by anybody.
func (r *reader) generation(ctx context.Context) (uint32, error) {
	var count uint32
	err := r.socket.Ask(ctx, unix.NFT_MSG_GETGEN, unix.NFPROTO_UNSPEC, false, nil, func(m netlink.Netfilter) {
		count = netlink.Find(m.Attrs, unix.NFTA_GEN_ID).Uint32()
	})
	if err != nil {
		return 0, fmt.Errorf("ask for the generation of the tables: %w", err)
	}
	return count, nil
}
