// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
)

// line is one line of a transcript. Lines of one time and word become one, with all items.
type line struct {
	at    time.Time
	word  string
	items []string
	tail  string
}

func (h *fixture) note(word string, items ...string) { h.noteTail(word, "", items...) }

func (h *fixture) noteTail(word, tail string, items ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := len(h.lines) - 1; last >= 0 && len(items) > 0 && tail == "" {
		if l := &h.lines[last]; l.word == word && l.at.Equal(h.clock()) && l.tail == "" {
			l.items = append(l.items, items...)
			return
		}
	}
	h.lines = append(h.lines, line{h.clock(), word, items, tail})
}

// ack notes an ack.
func (h *fixture) ack(result dataplane.Ack) {
	word := "applied"
	if result.Quarantined {
		word = "quarantined"
	}
	h.note(word, nameOf(result.Key)+" "+result.Revision.String())
}

// event notes an event that no ack contains.
func (h *fixture) event(e Event) {
	switch e := e.(type) {
	case GateOpened:
		h.note(fmt.Sprintf("gate opened%s%s", counted(e.Missing, " without %d Services"), when(e.Node, " without the node")))
	case BatchWritten:
		h.noteTail("write", ": "+answer(&e.Receipt), changes(e.Batch)...)
	case AuditDone:
		text := fmt.Sprintf("read%s%s%s", counted(e.Drift.Missing, ", %d missing"), counted(e.Drift.Different, ", %d different"),
			counted(e.Drift.Unwanted, ", %d unwanted"))
		if e.Err != nil {
			text = "read: " + e.Err.Error()
		}
		h.note(text)
	case RepairBegan:
		h.noteTail("repair begins", fmt.Sprintf("%s%s", when(e.By.Command != "", ", undone by "+e.By.Command),
			when(e.Pause > 0, fmt.Sprintf(", %d times before, waits %v", e.Again, e.Pause))), slices.Sorted(slices.Values(e.Examples))...)
	case Repaired:
		h.note(fmt.Sprintf("repaired %d after %v", e.Objects, e.Took))
	case PartlyRepaired:
		h.note("partly repaired")
	case Freed:
		h.note("freed", nameOf(e.Key))
	case NodeAtFault:
		h.note("node at fault: " + e.Reason)
	case LateRejected:
		h.note("too late", nameOf(e.Key)+" "+e.Revision.String())
	}
}

func counted(n int, format string) string { return when(n > 0, fmt.Sprintf(format, n)) }

func when(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

// changes describes a batch: -NAME is a removal, NAME? is not sure to be as it is known.
func changes(b *dataplane.Batch) (all []string) {
	for _, c := range b.Changes {
		text := c.ID.Name
		if c.Unsure {
			text += "?"
		}
		if c.After == nil {
			text = "-" + text
		} else if c.After.Body != "" {
			text += "=" + c.After.Body
		}
		all = append(all, text)
	}
	return all
}

// answer describes a receipt.
func answer(r *dataplane.Receipt) string {
	text := r.Outcome.String()
	if len(r.Suspects) > 0 {
		var named []string
		for _, key := range r.Suspects {
			named = append(named, nameOf(key))
		}
		text += map[bool]string{true: ", proves ", false: ", names "}[r.Proven] + strings.Join(named, " ")
	}
	return text
}

var numbered = regexp.MustCompile(`^([^\d]*)(\d+)(.*)$`)

// compress writes n00/0=1, n01/0=1, n02/0=1 as n00..n02/0=1.
func compress(items []string) string {
	var out []string
	for i := 0; i < len(items); {
		parts := numbered.FindStringSubmatch(items[i])
		end := i + 1
		for ; parts != nil && end < len(items); end++ {
			n, _ := strconv.Atoi(parts[2])
			if items[end] != fmt.Sprintf("%s%0*d%s", parts[1], len(parts[2]), n+end-i, parts[3]) {
				break
			}
		}
		if end-i < 3 {
			out, i = append(out, items[i]), i+1
			continue
		}
		last := numbered.FindStringSubmatch(items[end-1])
		out, i = append(out, parts[1]+parts[2]+".."+parts[1]+last[2]+parts[3]), end
	}
	return strings.Join(out, " ")
}

// since is a time of the story.
func (s *script) since(at time.Time) string { return "+" + at.Sub(s.began).String() }

// shown returns what has happened since it was called last, and what has changed.
func (s *script) shown() string {
	s.h.mu.Lock()
	lines := s.h.lines
	s.h.lines = nil
	s.h.mu.Unlock()
	var out strings.Builder
	for i := 0; i < len(lines); {
		l := lines[i]
		text := l.word + when(len(l.items) > 0, " "+compress(l.items)) + l.tail
		same := i + 1
		for ; same < len(lines) && lines[same].word == l.word && len(l.items)+len(lines[same].items) == 0; same++ {
		}
		if times := same - i; times > 2 {
			text += fmt.Sprintf(" (%d times until %s)", times, s.since(lines[same-1].at))
			i = same
		} else {
			i++
		}
		fmt.Fprintf(&out, "%s %s\n", s.since(l.at), text)
	}
	if text := s.h.text(); text != s.kernel {
		s.kernel = text
		fmt.Fprintf(&out, "kernel: %s\n", compress(strings.Fields(text)))
	}
	if text := s.statusText(); text != s.status {
		s.status = text
		fmt.Fprintf(&out, "status: %s\n", text)
	}
	return out.String()
}

// statusText has what is not as it should be.
func (s *script) statusText() string {
	st := s.h.Status()
	var parts []string
	add := func(is bool, format string, args ...any) {
		if is {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(!st.Open, "closed")
	add(st.Missing > 0, "%d missing", st.Missing)
	add(!st.OldestPending.IsZero(), "pending since %s", s.since(st.OldestPending))
	var pending []string
	for _, key := range s.h.machine.allUnapplied() {
		pending = append(pending, nameOf(key))
	}
	slices.Sort(pending)
	add(len(pending) > 0, "pending %s", compress(pending))
	add(!st.Bare.IsZero(), "no rules since %s", s.since(st.Bare))
	add(st.Waiting > 0, "%d waiting", st.Waiting)
	add(st.Failures > 0, "%d failures", st.Failures)
	add(st.LastError != "", "error %q", st.LastError)
	add(st.NodeAtFault, "node at fault")
	for _, q := range st.Quarantined {
		add(true, "quarantined %s %v since %s (%s)", nameOf(q.Key), q.Revision, s.since(q.Since), q.Reason)
	}
	add(st.Ledger.Dirty > 0, "%d dirty", st.Ledger.Dirty)
	add(len(parts) == 0, "all %d keys applied, %d objects", st.Ledger.Keys, st.Ledger.Objects)
	return strings.Join(parts, ", ")
}
