// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

// Print prints the report as tables. On a wide page, each group is followed by its differences.
func (r *Report) Print(to *terminal.Page) {
	to.Say("mode %s, node %s, %s, %s\n", r.Mode, r.Node, plural.Of(r.Services, "Service"), strings.Join(r.Domains, " "))
	if len(r.Groups) > 0 {
		to.Say("\n")
		r.groups(to)
	}
	if to.Wide {
		for _, g := range r.Groups {
			g.lines(to)
		}
	}
	if len(r.Others) > 0 {
		to.Say("\nLeftover rules of other modes that will be removed:\n")
		for _, o := range r.Others {
			to.Say("  %s: %s\n", o.Of, o.What)
		}
	}
	if len(r.Settings) > 0 {
		to.Say("\nkernel settings changed by a start:\n")
		for _, s := range r.Settings {
			note := ""
			if s.Problem != "" {
				note = " (this process cannot: " + s.Problem + ")"
			}
			to.Say("  %s: %s -> %s%s\n", s.Name, s.From, s.To, note)
		}
	}
	r.unserved(to)
	r.summary(to)
}

// groups prints one row per group.
func (r *Report) groups(to *terminal.Page) {
	t := terminal.NewTable(to, "SERVICE", "ADDED", "CHANGED", "REMOVED")
	for _, g := range r.Groups {
		t.Row(g.name(), strconv.Itoa(g.Added), strconv.Itoa(g.Changed), strconv.Itoa(g.Removed))
	}
	t.End()
}

// name is the name of a group in a table. The names in parentheses cannot be names of Services.
func (g *Group) name() string {
	switch g.Kind {
	case OfNode:
		return "(node-wide)"
	case OfNobody:
		return "(unowned)"
	default:
		return g.Service
	}
}

// lines prints the differences of a group.
func (g *Group) lines(to *terminal.Page) {
	to.Say("\n%s\n", g.name())
	last := ""
	for _, o := range g.Objects {
		if head := fmt.Sprintf("  %s %s: %s", o.Domain, o.Where, o.Change); head != last {
			to.Say("%s\n", head)
			last = head
		}
		for _, text := range o.Before {
			to.Say("    - %s\n", text)
		}
		for _, text := range o.After {
			to.Say("    + %s\n", text)
		}
		if o.Change == Changed && len(o.Before)+len(o.After) == 0 {
			to.Say("    (only the order of its lines)\n")
		}
	}
}

// unserved prints the parts of objects that a start does not serve.
func (r *Report) unserved(to *terminal.Page) {
	if len(r.Warnings) > 0 {
		to.Say("\nparts of objects that a start ignores:\n")
	}
	for _, w := range r.Warnings {
		to.Say("  %v\n", w)
	}
}

func (r *Report) summary(to *terminal.Page) {
	if !r.Differs() {
		to.Say("\nNo changes: all %s are up to date.\n", plural.Of(r.Unchanged, "object"))
		return
	}
	var added, changed, removed, services int
	for _, g := range r.Groups {
		added, changed, removed = added+g.Added, changed+g.Changed, removed+g.Removed
		if g.Kind == OfService {
			services++
		}
	}
	to.Say("\n%s would change. Objects: %d to add, %d to change, %d to remove; %s up to date.\n",
		plural.Of(services, "Service"), added, changed, removed, are(r.Unchanged))
}

func are(n int) string {
	if n == 1 {
		return "1 is"
	}
	return fmt.Sprintf("%d are", n)
}
