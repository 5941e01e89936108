// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// TestUndone_OnlyForeignChanges: an audit reports only changes by other processes: no objects found at startup, none
// left by the ledger's own writes, and none that are not written yet.
func TestUndone_OnlyForeignChanges(t *testing.T) {
	tests := []struct {
		name string
		// before happens between the write of a.1, a.2 and b.1 and the audit, which
		// reads these.
		before func(*Ledger)
		read   []dataplane.Object
		want   string
	}{
		{"nothing", nil, []dataplane.Object{chain("a.1", "x"), chain("a.2", "x"), chain("b.1", "x")}, "nothing"},
		{"each kind", nil, []dataplane.Object{chain("a.1", "x"), chain("a.2", "y"), chain("c", "z")},
			"1 missing, 1 different, 1 unwanted of 2 Services: a.2 of ns/a, b.1 of ns/b missing, c of node unwanted"},
		{"everything", nil, nil, "3 missing, 0 different, 0 unwanted of 2 Services: a.1 of ns/a missing, a.2 of ns/a missing, b.1 of ns/b missing"},
		{"not yet written", func(l *Ledger) {
			l.Want(fragment("a", 2, chain("a.1", "x"), chain("a.2", "new"), chain("a.3", "new")))
		},
			[]dataplane.Object{chain("a.1", "x"), chain("a.2", "x"), chain("b.1", "x")}, "nothing"},
		{"left by a write whose outcome is unknown", func(l *Ledger) {
			l.Want(fragment("a", 2, chain("a.1", "x"), chain("a.3", "new")))
			l.Settle(l.Plan(), dataplane.Receipt{Outcome: dataplane.Unknown})
		}, []dataplane.Object{chain("a.1", "x"), chain("a.2", "x"), chain("b.1", "x")}, "nothing"},
		{"beside what has yet to be written", func(l *Ledger) { l.Want(fragment("a", 2, chain("a.1", "new"), chain("a.2", "x"))) },
			[]dataplane.Object{chain("a.1", "x"), chain("a.2", "x")}, "1 missing, 0 different, 0 unwanted of 1 Services: b.1 of ns/b missing"},
		{"found before, and not repaired yet", func(l *Ledger) { l.Observe([]dataplane.Object{chain("a.1", "x"), chain("a.2", "x")}) },
			[]dataplane.Object{chain("a.1", "x"), chain("a.2", "x")}, "nothing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := New(nil, names{}, nil)
			l.Want(fragment("a", 1, chain("a.1", "x"), chain("a.2", "x")))
			l.Want(fragment("b", 1, chain("b.1", "x")))
			if drift := l.Observe([]dataplane.Object{chain("a.1", "x"), chain("left", "x")}); drift.Undone != nil {
				t.Errorf("the first audit takes what it finds for somebody else's: %+v", *drift.Undone)
			}
			l.Settle(l.Plan(), landed())
			if tt.before != nil {
				tt.before(l)
			}
			if got := undoneText(l.Observe(tt.read).Undone); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func undoneText(u *Undone) string {
	if u == nil {
		return "nothing"
	}
	text := fmt.Sprintf("%d missing, %d different, %d unwanted of %d Services:", u.Missing, u.Different, u.Unwanted, u.Services)
	names := map[string]string{}
	for _, o := range u.Objects {
		line := fmt.Sprintf(" %s of %v", o.ID.Name, o.Owner)
		if o.Missing {
			line += " missing"
		}
		if o.Unwanted {
			line += " unwanted"
		}
		names[o.ID.Name] = line
	}
	separator := ""
	for _, name := range []string{"a.1", "a.2", "a.3", "b.1", "c"} {
		if line, ok := names[name]; ok {
			text, separator = text+separator+line, ","
		}
	}
	return text
}

// TestUndone_IsBounded: a flushed ruleset is counted in full and listed in part.
func TestUndone_IsBounded(t *testing.T) {
	l := New(nil, names{}, nil)
	const services = UndoneMax + 100
	for i := range services {
		l.Want(fragment(fmt.Sprint("s", i), 1, chain(fmt.Sprint("c", i), "x")))
	}
	l.Want(fragment("", 1))
	l.Settle(l.Plan(), landed())
	u := l.Observe(nil).Undone
	if u.Missing != services || u.Count() != services || u.Services != services || len(u.Objects) != UndoneMax {
		t.Errorf("%d missing of %d Services, %d listed", u.Missing, u.Services, len(u.Objects))
	}
}

// TestUndone_PartsNameServices: a missing composed object counts for every Service that has a line in it.
func TestUndone_PartsNameServices(t *testing.T) {
	l := New(nil, names{}, nil)
	composed := chain("leaf", "x")
	composed.Links = &dataplane.Links{Parts: []dataplane.Part{{Owner: key("a")}, {Owner: key("b")}, {Owner: service.Node}, {Owner: key("b")}}}
	l.Want(fragment("a", 1, chain("a.1", "x")))
	l.Settle(l.Plan(), landed())
	e := l.entries.demand(composed.ID)
	e.wanted, e.known = &composed, &composed
	if u := l.Observe([]dataplane.Object{chain("a.1", "x")}).Undone; u == nil || u.Services != 2 || u.Missing != 1 {
		t.Errorf("%+v", u)
	}
}

// TestUndone_NamesFrontend: an undone object names the frontend that the naming reads from its identity.
func TestUndone_NamesFrontend(t *testing.T) {
	l := New(nil, names{}, nil)
	l.Want(fragment("a", 1, served(1, "x"), hairpin()))
	l.Settle(l.Plan(), landed())
	told := map[string]string{}
	for _, o := range l.Observe(nil).Undone.Objects {
		told[o.ID.Container] = fmt.Sprint(o.Frontend != service.Frontend{}, " ", o.Frontend)
	}
	if got, want := fmt.Sprint(told), "map[@frontends:true 192.0.2.1:80/tcp @hairpins:false node port 0/tcp]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
