package iptables

import (
	"context"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
)

// tableSizer is what a tool may offer for finding out cheaply that a table is
// as it was. Two equal sizes mean that nothing was only added or only taken away
// between them.
type tableSizer interface {
	// TableSize is false when this tool cannot tell.
	TableSize(table Table) (size, bool)
}

// size is that of a table in the kernel. A rule that was exchanged for another one of
// the same size is not seen; the audit notices.
type size struct {
	entries, bytes uint32
}

// sizes keeps account of how large the tables are when nobody but the writer touches
// them. It belongs to whoever has the turn with the tool.
//
// Invariant: a change that no Read has seen, and that our own writes do not account
// for, sets touched. A write that hides a stranger's deletion in the same moment is
// found out by what it should have come to.
type sizes struct {
	tool tableSizer
	// known are the tables' sizes at the last Read, look or write; a table is
	// missing while nothing is known of it.
	known map[Table]size
	// touched is set when a stranger has changed a table and no Read has
	// succeeded since.
	touched bool
}

func newSizes(tool tableSizer) *sizes { return &sizes{tool: tool, known: make(map[Table]size)} }

// look compares all tables with what is known of them.
func (s *sizes) look() {
	for table, known := range s.known {
		if now, ok := s.tool.TableSize(table); ok && now != known {
			s.known[table], s.touched = now, true
		}
	}
}

// measure gives the size of every table that has one.
func (s *sizes) measure() map[Table]size {
	all := make(map[Table]size)
	for _, table := range [...]Table{Mangle, Filter, NAT} {
		if now, ok := s.tool.TableSize(table); ok {
			all[table] = now
		}
	}
	return all
}

// read says that everything was read since the sizes were measured: whoever has
// changed something before, it has been seen, and what came during the reading makes
// the next look find another size.
func (s *sizes) read(before map[Table]size) { s.known, s.touched = before, false }

// wrote says that a batch was written since the last look. Where it is known by how
// many entries that changes a table, any other number is a stranger's work.
func (s *sizes) wrote(batch *dataplane.Batch, receipt *dataplane.Receipt) {
	growth := growthOf(batch, receipt)
	for table, before := range s.known {
		now, ok := s.tool.TableSize(table)
		if !ok {
			continue
		}
		fresh := before == size{} // the kernel has added the table's own entries
		if by, certain := growth.in(table); certain && !fresh && int64(now.entries) != int64(before.entries)+by {
			s.touched = true
		}
		s.known[table] = now
	}
}

// growth is by how many entries a batch changes each table.
type growth struct {
	entries map[Table]int64
	vague   map[Table]bool
}

// in gives the growth of one table, and whether it is certain.
func (g *growth) in(table Table) (entries int64, certain bool) {
	return g.entries[table], !g.vague[table]
}

// growthOf counts what a batch has changed, by what is certain to have been before and
// to be now.
func growthOf(batch *dataplane.Batch, receipt *dataplane.Receipt) *growth {
	g := &growth{entries: make(map[Table]int64), vague: make(map[Table]bool)}
	for i := range batch.Changes {
		c := &batch.Changes[i]
		now, known := c.After, receipt.Outcome == dataplane.Landed
		if !known {
			now, known = receipt.Certain[c.ID]
		}
		name, _, isHook := strings.Cut(c.ID.Container, "/")
		table, target := Table(name), c.ID.Name
		if isHook {
			target = ruleTarget(target)
		}
		if !known || c.Unsure || isShared(table, target) {
			g.vague[table] = true
			continue
		}
		g.entries[table] += entriesOf(now, isHook) - entriesOf(c.Before, isHook)
	}
	return g
}

// entriesOf counts the entries of a legacy table that an object is: a rule is one, and
// a chain has a head and a tail beside its rules.
func entriesOf(o *dataplane.Object, isHook bool) int64 {
	switch {
	case o == nil:
		return 0
	case isHook:
		return 1
	default:
		return 2 + int64(ruleCount(o))
	}
}

const (
	// sizesInterval is the pause between looks at the sizes, which take
	// microseconds.
	sizesInterval = time.Second
	// readPause is the pause between two reads for strangers' changes, for each entry
	// of the tables: ten times what reading one takes. Sizes do not say whose chains
	// have changed, so where other programs write all the time, each look would ask
	// for a read. It is counted and not measured, since under load a read takes long.
	readPause = 50 * time.Microsecond
)

// pause is the pause between two reads for strangers' changes.
func (s *sizes) pause() (pause time.Duration) {
	for _, known := range s.known {
		pause += time.Duration(known.entries) * readPause
	}
	return pause
}

// watchSizes looks at the sizes of the tables.
func (w *Writer) watchSizes(ctx context.Context, changed func(by dataplane.Stranger)) error {
	var told time.Time
	return w.every(ctx, sizesInterval, func() {
		w.sizes.look()
		if !w.sizes.touched || time.Since(told) < w.sizes.pause() {
			return
		}
		w.sizes.touched, told = false, time.Now()
		changed(dataplane.Stranger{})
	})
}
