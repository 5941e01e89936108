// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"

	nfttrace "github.com/sluice-proxy/sluice/dataplane/nftables/trace"
	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

// Print writes an answer for people.
func (a *Answer) Print(out *terminal.Page) {
	out.Say("%s -> %s/%s, traced for %s\n\n", a.From, a.To, a.Protocol, a.Duration)
	t := terminal.NarrowTable(out)
	if len(a.Paths) == 0 {
		t.Row("Result:", "no packet of this flow arrived within "+a.Duration)
	} else {
		packets := map[bool]int{}
		for i := range a.Paths {
			packets[a.Paths[i].Reply] += a.Paths[i].Packets
		}
		t.Row("Packets:", fmt.Sprintf("%d from the client, %s", packets[false], plural.Of(packets[true], "reply")))
		a.compared(t)
	}
	for _, note := range a.Notes {
		t.Row("Note:", note)
	}
	t.End()
	for i := range a.Paths {
		a.Paths[i].print(out)
	}
}

func (a *Answer) compared(t *terminal.Table) {
	switch c := &a.Explain; {
	case c.Error != "":
		t.Row("Explain:", "not compared: "+c.Error)
	case len(c.Differences) == 0:
		t.Row("Explain:", fmt.Sprintf("no difference (%s)", c.Verdict))
	default:
		for _, text := range c.Differences {
			t.Row("Differs:", text)
		}
	}
}

func (path *Path) print(out *terminal.Page) {
	who := "the client"
	if path.Reply {
		who = "the other side"
	}
	what := fmt.Sprintf("1 packet from %s:", who)
	if path.Packets > 1 {
		what = fmt.Sprintf("%d packets from %s, the first one:", path.Packets, who)
	}
	through := ""
	if path.ICMP {
		through += " (ICMP)"
	}
	if path.In != "" {
		through += " through " + path.In
	}
	out.Say("\n%s %s -> %s%s\n", what, path.From, path.To, through)
	t := terminal.NarrowTable(out, "HOOK", "TABLE", "CHAIN", "VERDICT", "RULE")
	before := nfttrace.Step{}
	for _, s := range path.Steps {
		hook, table, text := s.Hook, s.Table, s.Text
		if s.Hook == before.Hook {
			hook = " "
			if s.Table == before.Table {
				table = " "
			}
		}
		if before = s; text == s.Verdict {
			text = ""
		}
		if s.Table == "" {
			t.Row(hook, "", "", "", "now "+text)
			continue
		}
		t.Row(hook, table, chainText(&s), s.Verdict, text)
	}
	t.End()
	out.Say("Result: %s\n", path.Conclusion)
}

// chainText is the chain with the number of the rule, as explain prints it.
func chainText(s *nfttrace.Step) string {
	switch {
	case s.Policy:
		return s.Chain + " policy"
	case s.Rule == 0:
		return fmt.Sprintf("%s handle %d", s.Chain, s.Handle)
	default:
		return fmt.Sprintf("%s #%d", s.Chain, s.Rule)
	}
}
