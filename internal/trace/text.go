package trace

import (
	"fmt"
	"io"
	"text/tabwriter"

	nfttrace "github.com/sluice-proxy/sluice/dataplane/nftables/trace"
	"github.com/sluice-proxy/sluice/internal/plural"
)

// Print writes an answer for people.
func (a *Answer) Print(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s -> %s/%s, traced for %s\n\n", a.From, a.To, a.Protocol, a.Duration)
	if len(a.Paths) == 0 {
		fmt.Fprintf(t, "Result:\tno packet of this flow arrived within %s\n", a.Duration)
	} else {
		packets := map[bool]int{}
		for i := range a.Paths {
			packets[a.Paths[i].Reply] += a.Paths[i].Packets
		}
		fmt.Fprintf(t, "Packets:\t%d from the client, %s\n", packets[false], plural.Of(packets[true], "reply"))
		a.printCompared(t)
	}
	for _, note := range a.Notes {
		fmt.Fprintf(t, "Note:\t%s\n", note)
	}
	for i := range a.Paths {
		a.Paths[i].print(t)
	}
	return t.Flush()
}

func (a *Answer) printCompared(out io.Writer) {
	switch c := &a.Explain; {
	case c.Error != "":
		fmt.Fprintf(out, "Explain:\tnot compared: %s\n", c.Error)
	case len(c.Differences) == 0:
		fmt.Fprintf(out, "Explain:\tno difference (%s)\n", c.Verdict)
	default:
		for _, text := range c.Differences {
			fmt.Fprintf(out, "Differs:\t%s\n", text)
		}
	}
}

func (path *Path) print(out io.Writer) {
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
	fmt.Fprintf(out, "\n%s %s -> %s%s\n", what, path.From, path.To, through)
	fmt.Fprintf(out, "HOOK\tTABLE\tCHAIN\tVERDICT\tRULE\n")
	before := nfttrace.Step{}
	for _, s := range path.Steps {
		hook, table, text := s.Hook, s.Table, s.Text
		if s.Hook == before.Hook {
			hook = ""
			if s.Table == before.Table {
				table = ""
			}
		}
		if before = s; text == s.Verdict {
			text = ""
		}
		if s.Table == "" {
			fmt.Fprintf(out, "%s\t-\t-\t-\tnow %s\n", hook, text)
			continue
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\n", hook, table, chainText(&s), s.Verdict, text)
	}
	fmt.Fprintf(out, "Result: %s\n", path.Conclusion)
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
