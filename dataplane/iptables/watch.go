package iptables

import (
	"context"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
)

// How a writer learns that a stranger has touched its tables. Nothing that a stranger
// takes away may stay away until the next periodic audit:
//
//	nft variant     the kernel announces each transaction: at once (watch_announced.go)
//	legacy variant  the kernel tells sizes and nothing else: within a second (watch_sizes.go)
//	other tools     the canaries, at an interval
//
// What the writer does itself asks for no audit. In doubt about who has done
// something, it was a stranger: that costs a read, and a stranger's deletion that is
// taken for our own would be an outage.

// Watch calls changed when somebody else may have touched our chains or hooks, until
// the context ends, whose cause it returns.
func (w *Writer) Watch(ctx context.Context, changed func(by dataplane.Stranger)) error {
	switch {
	case w.authors != nil:
		return w.watchAnnounced(ctx, changed)
	case w.sizes != nil:
		return w.watchSizes(ctx, changed)
	default:
		return w.watchCanaries(ctx, changed)
	}
}

// every calls look at once and then at an interval, each time with the tool to itself,
// until the context ends, whose cause it returns.
func (w *Writer) every(ctx context.Context, interval time.Duration, look func()) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		if err := w.acquire(ctx); err != nil {
			return err
		}
		look()
		w.release()
		timer.Reset(interval)
	}
}

// chainFinder is what a tool may offer for looking at one chain without listing
// a whole table.
type chainFinder interface {
	HasChain(ctx context.Context, table Table, chain string) (bool, error)
}

// watchCanaries looks at the canaries and calls changed when one that it has seen is
// gone: somebody has flushed that table. Canaries that nobody has written yet are not
// missed. A tool that cannot answer means "not known", and is asked again.
func (w *Writer) watchCanaries(ctx context.Context, changed func(by dataplane.Stranger)) error {
	var guards []*guard
	for _, table := range [...]Table{Mangle, NAT, Filter} {
		if canary := w.config.Territory.Canaries[table]; canary != "" {
			guards = append(guards, &guard{table: table, canary: canary})
		}
	}
	return w.every(ctx, w.config.WatchInterval, func() {
		for _, g := range guards {
			if g.look(ctx, w.tool) {
				changed(dataplane.Stranger{})
			}
		}
	})
}

// guard watches the canary of one table.
type guard struct {
	table  Table
	canary string
	// seen is set when the canary was there at the last look that succeeded.
	seen bool
}

// look reports whether the canary has gone since the last look.
func (g *guard) look(ctx context.Context, tool Tool) (gone bool) {
	exists, err := hasChain(ctx, tool, g.table, g.canary)
	if err != nil {
		return false
	}
	gone = g.seen && !exists
	g.seen = exists
	return gone
}

// hasChain asks in the cheapest way that the tool offers.
func hasChain(ctx context.Context, tool Tool, table Table, chain string) (bool, error) {
	if finder, ok := tool.(chainFinder); ok {
		return finder.HasChain(ctx, table, chain)
	}
	s, err := readTable(ctx, tool, table)
	if err != nil {
		return false, err
	}
	return s.exists[chain], nil
}
