// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/internal/terminal"
)

// Print writes an answer for people.
func (a *Answer) Print(out *terminal.Page) {
	through := ""
	if a.Interface != "" {
		through = " through " + a.Interface
	}
	out.Say("%s -> %s/%s%s on node %s, mode %s\n\n", a.From, a.To, a.Protocol, through, a.Node, a.Mode)
	t := terminal.NarrowTable(out)
	t.Row("Service:", a.serviceText())
	t.Row("From:", string(a.Origin))
	t.Row("Verdict:", a.verdictText())
	list(t, "Because:", a.Reasons)
	for _, p := range a.Pending {
		text := fmt.Sprintf("the latest rules of %s are not applied yet (%s", p.Service, p.State)
		if p.Reason != "" {
			text += ": " + p.Reason
		}
		t.Row("But:", text+"); this answer is about them")
	}
	list(t, "Assumed:", a.Assumed)
	t.End()
	a.printRules(out)
	a.printOutcomes(out)
	a.Connections.print(out)
	if len(a.NotEvaluated) > 0 {
		out.Say("\nNot evaluated: chains of other programs, which may decide otherwise (sluice trace shows their effect):\n")
		for _, chain := range a.NotEvaluated {
			out.Say("  %s\n", chain)
		}
	}
}

func list(t *terminal.Table, title string, lines []string) {
	for _, line := range lines {
		t.Row(title, line)
		title = " "
	}
}

func (a *Answer) serviceText() string {
	if len(a.Frontends) == 0 {
		return "none"
	}
	f := a.Frontends[0]
	port := ""
	if f.Port != "" {
		port = ", port " + f.Port
	}
	return fmt.Sprintf("%s%s (%s, traffic policy %s)", f.Service, port, f.Kind, f.Policy)
}

func (a *Answer) verdictText() string {
	switch a.Verdict {
	case Delivered:
		others := slices.DeleteFunc(slices.Clone(a.Outcomes), func(o Outcome) bool { return o.Verdict == Delivered })
		refused := ""
		if len(others) > 0 {
			refused = "; or refused"
		}
		if len(a.Outcomes) == 1+len(others) {
			return fmt.Sprintf("delivered to %s, which sees %s%s", a.Outcomes[0].To, a.sourceText(), refused)
		}
		return fmt.Sprintf("delivered to one of %d endpoints, which sees %s%s", len(a.Outcomes)-len(others), a.sourceText(), refused)
	case Refused:
		return "refused: the client immediately receives an error: the port is unreachable"
	case Dropped:
		return "dropped: the client receives no response and times out"
	default:
		return "untouched: no Sluice rule applies to this connection"
	}
}

func (a *Answer) sourceText() string {
	switch {
	case a.Source == AsClient:
		return "the client's address"
	case a.Source == AsNode:
		return "an address of the node"
	default:
		return "the client's address or the node's, depending on the endpoint"
	}
}

// shape is a group of ways that pass the same hooks and have the same end.
type shape struct {
	key   string
	first *Outcome
	to    []string
}

// shapes groups outcomes. The rules of the first outcome stand for its whole group.
func (a *Answer) shapes() []shape {
	var all []shape
	for i := range a.Outcomes {
		o := &a.Outcomes[i]
		key := fmt.Sprint(o.Verdict, o.Masqueraded)
		for _, s := range o.Steps {
			if !strings.HasSuffix(key, s.Hook+s.Table) {
				key += s.Hook + s.Table
			}
		}
		at := slices.IndexFunc(all, func(s shape) bool { return s.key == key })
		if at < 0 {
			at = len(all)
			all = append(all, shape{key: key, first: o})
		}
		all[at].to = append(all[at].to, o.To)
	}
	return all
}

func (a *Answer) printRules(out *terminal.Page) {
	shapes := a.shapes()
	for _, s := range shapes {
		title := "RULES THAT MATCH"
		if len(s.to) > 1 {
			title += " (to " + s.first.To + "; similar for other endpoints)"
		}
		if len(shapes) > 1 {
			title = fmt.Sprintf("RULES THAT MATCH (to %s)", some(s.to))
		}
		out.Say("\n")
		t := terminal.NarrowTable(out, "HOOK", "TABLE", "CHAIN", title)
		addSteps(t, s.first.Steps)
		t.End()
	}
}

// place returns the chain, and the number of the rule if it is known.
func (s *Step) place() string {
	if s.Rule == 0 {
		return s.Chain
	}
	return fmt.Sprintf("%s #%d", s.Chain, s.Rule)
}

// some joins the first few words of a list.
func some(words []string) string {
	const most = 3
	if len(words) <= most {
		return strings.Join(words, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(words[:most], ", "), len(words)-most)
}

// leadsEverywhere reports whether the rule only jumps from a base chain to another chain, as all rules of base chains
// do in iptables mode.
func (s *Step) leadsEverywhere() bool {
	return s.Base && (s.Rule == 0 || strings.HasPrefix(s.Text, "jump "))
}

// addSteps adds the rules by hook. It leaves out those for which leadsEverywhere holds.
func addSteps(t *terminal.Table, steps []Step) {
	for len(steps) > 0 {
		end := slices.IndexFunc(steps, func(s Step) bool { return s.Hook != steps[0].Hook || s.Table != steps[0].Table })
		if end < 0 {
			end = len(steps)
		}
		hook, table, none := steps[0].Hook, steps[0].Table, true
		for _, s := range steps[:end] {
			if s.leadsEverywhere() {
				continue
			}
			t.Row(hook, table, s.place(), s.Text)
			if s.Element != "" {
				t.Row(" ", " ", "  @"+s.Set, "  "+s.Element)
			}
			hook, table, none = " ", " ", false
		}
		if none {
			t.Row(hook, table, "", "nothing matches")
		}
		steps = steps[end:]
	}
}

func (a *Answer) printOutcomes(out *terminal.Page) {
	if a.Verdict != Delivered {
		return
	}
	out.Say("\n")
	t := terminal.NarrowTable(out, "ENDPOINT", "PROBABILITY", "NODE", "STATE", "SEES")
	for _, o := range a.Outcomes {
		sees, probability := "client", ""
		if o.Verdict != Delivered {
			sees = "-"
		} else if o.Masqueraded || a.Origin == FromNode {
			sees = "node"
		}
		if o.Probability > 0 {
			probability = fmt.Sprintf("%.2f %%", 100*o.Probability)
		}
		t.Row(o.To, probability, o.Node, o.state(), sees)
	}
	t.End()
}

func (o *Outcome) state() string {
	switch {
	case o.Verdict != Delivered:
		return string(o.Verdict)
	case o.Terminating:
		return "terminating"
	case o.Ready:
		return "ready"
	default:
		return "-"
	}
}

// state returns the state. The kernel does not report the state of an offloaded connection.
func (c *Connection) state() string {
	if c.Offloaded {
		return "offloaded"
	}
	return cmp.Or(c.State, "-")
}

func (c *Connections) print(out *terminal.Page) {
	switch {
	case c == nil:
	case c.Error != "":
		out.Say("\nExisting connections are unknown: %s\n", c.Error)
	case len(c.Items) == 0:
		out.Say("\nThe kernel tracks no connection of this client to this destination, so the rules decide.\n")
	default:
		out.Say("\nExisting connections, which the rules no longer affect:\n")
		t := terminal.NarrowTable(out, "FROM", "TO", "SEEN AS", "STATE")
		for _, one := range c.Items {
			t.Row(one.From, one.To, one.Source, one.state())
		}
		if t.End(); c.More > 0 {
			out.Say("and %d more\n", c.More)
		}
	}
}
