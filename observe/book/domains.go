// SPDX-License-Identifier: Apache-2.0

package book

import (
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/observe/state"
)

// History is what happened in one domain and is not part of a snapshot.
type History struct {
	// Failing is the time of the first failed write since the last success. It is valid only while the snapshot shows
	// that writes fail.
	Failing time.Time
	// Read is when an audit last read the kernel, and Right when one last found it as wanted.
	Read, Right time.Time
	// Unread is when audits began to fail, and ReadErr says why.
	Unread  time.Time
	ReadErr string
	// Drift is what the last audit with a difference found, at DriftAt; Drifts counts such audits. The first audit
	// does not count: what differs then was left by the previous run.
	Drift   ledger.Drift
	DriftAt time.Time
	Drifts  int
}

// Domain returns the history of a domain, given its newest snapshot. Failing writes without an event fail from now on.
func (b *Book) Domain(s *aggregator.Status) History {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.domains[s.Domain]
	if s.Failing() && h.Failing.IsZero() {
		h.Failing = now
		b.domains[s.Domain] = h
	}
	return h
}

// wrote records a write.
func (b *Book) wrote(now time.Time, e *aggregator.BatchWritten) {
	var before aggregator.Status
	landed := e.Receipt.Outcome == dataplane.Landed
	if !landed { // a success needs no context
		before = b.before(e.Domain)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.domains[e.Domain]
	switch {
	case landed:
		h.Failing = time.Time{}
	case h.Failing.IsZero() || !before.Failing():
		h.Failing = now
	}
	b.domains[e.Domain] = h
}

// audited records an audit. While our own changes wait to be written, a difference is not attributed to other programs.
func (b *Book) audited(now time.Time, e *aggregator.AuditDone) {
	before := b.before(e.Domain)
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.domains[e.Domain]
	switch quiet := !h.Read.IsZero() && !before.Failing() && before.Ledger.Dirty == 0; {
	case e.Err != nil:
		if h.Unread.IsZero() {
			h.Unread = now
		}
		h.ReadErr = state.OneLine(e.Err.Error())
		b.domains[e.Domain] = h
		return
	case !e.Drift.Any():
		h.Right = now
	case quiet:
		h.Drift, h.DriftAt = e.Drift, now
		h.Drifts++
	}
	h.Read, h.Unread, h.ReadErr = now, time.Time{}, ""
	b.domains[e.Domain] = h
}

// before returns the snapshot of a domain from before an event: the aggregator replaces it after
// the listeners have returned.
func (b *Book) before(domain string) aggregator.Status {
	for _, s := range b.Status() {
		if s.Domain == domain {
			return s
		}
	}
	return aggregator.Status{}
}
