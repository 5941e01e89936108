// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/internal/terminal"
	"github.com/sluice-proxy/sluice/observe/state"
)

// Print prints the state of a proxy for people.
func (s *Status) Print(to *terminal.Page) {
	t := terminal.NewTable(to)
	t.Row("Version:", fmt.Sprintf("%s (behaves like kube-proxy %s), PID %d, up %s", s.Version, s.Compatible, s.PID, Age(s.Now, s.Started)))
	t.Row("Mode:", fmt.Sprintf("%s: %s", s.Mode, s.ModeReason))
	node := s.Node
	if s.Zone != "" {
		node += ", zone " + s.Zone
	}
	t.Row("Node:", node)
	t.Row("Config:", "hash "+s.ConfigurationHash)
	t.Row("Source:", s.source())
	if s.Offload != nil {
		t.Row("Offload:", offloadText(s.Offload))
	}
	if len(s.SelfTest) > 0 {
		t.Row("Self-test:", "loopback of this node: "+s.selfTest())
	}
	if len(s.OtherChains) > 0 {
		t.Row("Other chains:", s.otherChains())
	}
	if s.Conntrack != nil {
		t.Row("Conntrack:", conntrackText(s.Conntrack, s.Now))
	}
	services := fmt.Sprint(s.Services)
	if s.States != nil {
		services += ": " + s.States.String()
	}
	t.Row("Services:", services)
	t.Row("Actors:", actorsText(&s.Actors))
	t.End()
	s.printDomains(to)
	s.printFindings(to)
}

// kindRejected is the kind of the finding about rejected manifests, whose last valid content is served.
const kindRejected = "manifest-rejected"

func (s *Status) source() string {
	text := s.Feed.From + ", "
	if s.Feed.Synced.IsZero() {
		text += "not synced yet"
	} else if slices.ContainsFunc(s.Findings, func(f Finding) bool { return f.Kind == kindRejected }) {
		text += "read " + Age(s.Now, s.Feed.Synced) + " ago, but not all of it is valid (see below)"
	} else {
		text += "in sync for " + Age(s.Now, s.Feed.Synced)
	}
	for _, r := range s.Feed.Resources {
		if !r.FailingSince.IsZero() {
			text += fmt.Sprintf("; %s fail since %s: %s", r.Name, Age(s.Now, r.FailingSince), r.Error)
		}
	}
	return text
}

func offloadText(o *Offload) string {
	text := "TCP, on " + plural.Of(o.Devices, "device")
	if o.Problem != "" {
		text += "; " + OneLine(o.Problem)
	}
	return text
}

// selfTest shows the result of each family.
func (s *Status) selfTest() string {
	var all []string
	for i := range s.SelfTest {
		t := &s.SelfTest[i]
		what := "passed"
		if !t.Passed {
			what = "FAILED"
		}
		all = append(all, fmt.Sprintf("%s %s %s ago", t.Family, what, Age(s.Now, t.At)))
	}
	return strings.Join(all, ", ")
}

// otherChains names the first chains of other programs.
func (s *Status) otherChains() string {
	const most = 5
	var all []string
	for _, c := range s.OtherChains[:min(most, len(s.OtherChains))] {
		all = append(all, c.Text)
	}
	if more := len(s.OtherChains) - most; more > 0 {
		all = append(all, fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, "; ")
}

func conntrackText(c *Conntrack, now time.Time) string {
	text := plural.Of(c.Entries, "entry") + ", no limit"
	if c.Limit > 0 {
		text = fmt.Sprintf("%d of %d entries (%d%%)", c.Entries, c.Limit, c.Entries*100/c.Limit)
	}
	if !c.LastDrop.IsZero() {
		text += ", last drop " + Age(now, c.LastDrop) + " ago"
	}
	return text
}

func actorsText(a *Actors) string {
	text := fmt.Sprintf("%d running", a.Running)
	for _, other := range []struct {
		n    int
		what string
	}{{a.Restarting, "restarting"}, {a.Parked, "parked"}, {a.Abandoned, "abandoned"}} {
		if other.n > 0 {
			text += fmt.Sprintf(", %d %s", other.n, other.what)
		}
	}
	return text
}

func (s *Status) printDomains(to *terminal.Page) {
	to.Say("\n")
	t := terminal.NewTable(to, "DOMAIN", "APPLIED", "PENDING", "SHADOWED", "HELD", "QUEUE", "OLDEST", "OBJECTS", "BATCHES", "LAST WRITE", "FAILED")
	for _, d := range s.Domains {
		state := fmt.Sprint(d.Applied)
		if !d.Open {
			state = "not begun"
		}
		t.Row(d.Name, state, fmt.Sprint(d.Pending), fmt.Sprint(d.Shadowed), fmt.Sprint(d.Held), fmt.Sprint(d.Queue), Age(s.Now, d.OldestPending),
			fmt.Sprint(d.Objects), fmt.Sprint(d.Batches), Age(s.Now, d.LastWrite), fmt.Sprint(d.Failures))
	}
	t.End()
	for _, d := range s.Domains {
		if d.LastError != "" {
			to.Say("%s, last error: %s\n", d.Name, OneLine(d.LastError))
		}
		for _, q := range d.Quarantined {
			to.Say("%s, held for %s: %s/%s: %s\n", d.Name, Age(s.Now, q.Since), q.Namespace, q.Name, OneLine(q.Reason))
		}
		if more := d.Held - len(d.Quarantined); more > 0 {
			to.Say("%s, also held: %s; see sluice get services --state held\n", d.Name, plural.Of(more, "Service"))
		}
	}
}

func (s *Status) printFindings(to *terminal.Page) {
	to.Say("\nHealth: %s\n", s.Health)
	for _, f := range s.Findings {
		about := ""
		if f.About != "" {
			about = " " + f.About
		}
		since := ""
		if !f.Since.IsZero() {
			since = " for " + Age(s.Now, f.Since)
		}
		to.Say("  %s%s%s: %s\n", f.Kind, about, since, f.Problem)
		if len(f.Services) > 0 {
			to.Say("    Services: %s\n", shortened(f.Services, len(f.Services)))
		}
		to.Say("    %s\n", f.Advice)
	}
}

// Unapplied describes the Services that are not fully applied, by their states in the list of Services; empty if all
// are.
func (s *Status) Unapplied() string {
	const named = 3
	for i := range s.Domains {
		if d := &s.Domains[i]; !d.Open {
			return fmt.Sprintf("%s: not begun, %s missing; see sluice status", d.Name, plural.Of(d.Missing, "Service"))
		}
	}
	var parts []string
	if c := s.States; c != nil {
		for _, one := range []struct {
			n     int
			is    state.State
			kinds []string
		}{{c.Held, state.Held, kindsHeld}, {c.Shadowed, state.Shadowed, []string{kindShadowed}}, {c.Pending, state.Pending, nil},
			{s.affected(kindTooLarge), "too large", []string{kindTooLarge}}} {
			if one.n == 0 {
				continue
			}
			part := fmt.Sprintf("%d %s", one.n, one.is)
			if names := s.concerned(one.kinds); len(names) > 0 {
				part += " (" + shortened(names, named) + ")"
			}
			parts = append(parts, part)
		}
	}
	if len(parts) > 0 {
		return fmt.Sprintf("%s of %s; see sluice get services", strings.Join(parts, ", "), plural.Of(s.Services, "Service"))
	}
	for i := range s.Domains { // removed Services whose rules remain count here
		if d := &s.Domains[i]; d.Pending+d.Held+d.Queue > 0 {
			return fmt.Sprintf("%s: %d pending, %d held, %d in the queue; see sluice status", d.Name, d.Pending, d.Held, d.Queue)
		}
	}
	return ""
}

// The kinds of the findings about Services that are not applied.
const kindShadowed, kindTooLarge = "shadowed", "too-large"

var kindsHeld = []string{"quarantined", "parked"}

// affected returns the number of Services of the findings of a kind.
func (s *Status) affected(kind string) (n int) {
	for i := range s.Findings {
		if f := &s.Findings[i]; f.Kind == kind {
			n += len(f.Services) + f.More
		}
	}
	return n
}

// concerned names the Services of findings of some kinds, each once.
func (s *Status) concerned(kinds []string) (all []string) {
	for i := range s.Findings {
		if f := &s.Findings[i]; slices.Contains(kinds, f.Kind) {
			all = append(all, f.Services...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// OneLine replaces line breaks and runs of spaces in a text by single spaces.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
