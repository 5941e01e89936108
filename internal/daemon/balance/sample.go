// SPDX-License-Identifier: Apache-2.0

package balance

import (
	"hash/maphash"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
)

// Above a limit, only a sample of the open connections of a Service counts, chosen by a hash of their tuples: old and
// new ones are in it with the same probability, and so are those of each endpoint. Weights need only proportions.

var sampleSeed = maphash.MakeSeed()

// sampled reports whether a connection is in the sample: one of 2 to the power of t.thinned.
func (t *tracked) sampled(of conntrack.Tuple) bool {
	return maphash.Comparable(sampleSeed, of)&(1<<t.thinned-1) == 0
}

// inSample makes room for a connection, and reports whether it counts.
func (w *worker) inSample(t *tracked, of conntrack.Tuple) bool {
	for t.sampled(of) && t.counted >= serviceMax {
		w.thin(t)
	}
	for w.counted >= connectionsMax {
		w.thin(w.largest())
	}
	return t.sampled(of)
}

// largest returns the Service with most connections that count. The caller drops half of them, so it is seldom called.
func (w *worker) largest() (most *tracked) {
	for _, t := range w.services {
		if most == nil || t.counted > most.counted {
			most = t
		}
	}
	return most
}

// thin halves the sample of a Service.
func (w *worker) thin(t *tracked) {
	t.thinned++
	w.partly(t)
	for of, c := range t.open {
		switch {
		case !c.counts || t.sampled(of):
		case c.replied:
			w.drop(t, of)
		default: // it still waits for its answer
			w.uncount(t, c)
			t.waiting++
			w.waiting++
		}
	}
}

// partly notes that not all connections of a Service are observed, and wholly that all are.
func (w *worker) partly(t *tracked) {
	if len(w.partial) == 0 && w.config.Partly != nil {
		w.config.Partly(t.key)
	}
	w.partial[t] = true
	w.partlyObserved.Store(int64(len(w.partial)))
}

func (w *worker) wholly(t *tracked) {
	delete(w.partial, t)
	w.partlyObserved.Store(int64(len(w.partial)))
}

// whole ends the sampling of Services that have few connections now: all of them are counted again.
func (w *worker) whole() {
	for t := range w.partial {
		switch {
		case t.counted >= serviceMax/8 || w.counted >= connectionsMax/2 || t.waiting >= serviceWaitingMax/2 || w.waiting >= waitingMax/2:
		case t.thinned > 0:
			w.abandon(t) // until they are counted
		default:
			w.wholly(t)
		}
	}
}
