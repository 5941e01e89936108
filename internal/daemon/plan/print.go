package plan

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/service"
)

// Print prints the report as tables for [inspect.Output]. With lines, each group is followed by its differences.
func (r *Report) Print(out io.Writer, lines bool) error {
	p := &printer{out: out}
	p.say("mode %s, node %s, %s, %s", r.Mode, r.Node, plural.Of(r.Services, "Service"), strings.Join(r.Domains, " "))
	if len(r.Groups) > 0 {
		p.say("")
		p.groups(r)
	}
	if lines {
		for _, g := range r.Groups {
			p.lines(g)
		}
	}
	if len(r.Others) > 0 {
		p.say("\nLeftover rules of other modes that will be removed:")
		for _, o := range r.Others {
			p.say("  %s: %s", o.Of, o.What)
		}
	}
	if len(r.Settings) > 0 {
		p.say("\nkernel settings changed by a start:")
		for _, s := range r.Settings {
			note := ""
			if s.Problem != "" {
				note = " (this process cannot: " + s.Problem + ")"
			}
			p.say("  %s: %s -> %s%s", s.Name, s.From, s.To, note)
		}
	}
	p.unserved(r)
	p.summary(r)
	return p.err
}

type printer struct {
	out io.Writer
	err error
}

func (p *printer) say(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format+"\n", args...)
	}
}

// groups prints one row per group.
func (p *printer) groups(r *Report) {
	var rows [][]string
	for _, g := range r.Groups {
		rows = append(rows, []string{g.name(), strconv.Itoa(g.Added), strconv.Itoa(g.Changed), strconv.Itoa(g.Removed)})
	}
	if err := inspect.Table(p.out, []string{"SERVICE", "ADDED", "CHANGED", "REMOVED"}, rows); p.err == nil {
		p.err = err
	}
}

// name is the name of a group in a table. No Service is called like the last two.
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
func (p *printer) lines(g *Group) {
	p.say("\n%s", g.name())
	last := ""
	for _, o := range g.Objects {
		if head := fmt.Sprintf("  %s %s: %s", o.Domain, o.Where, o.Change); head != last {
			p.say("%s", head)
			last = head
		}
		for _, text := range o.Before {
			p.say("    - %s", text)
		}
		for _, text := range o.After {
			p.say("    + %s", text)
		}
		if o.Change == Changed && len(o.Before)+len(o.After) == 0 {
			p.say("    (the order of its lines)")
		}
	}
}

// unserved prints the Services, and the parts of objects, that a start does not serve.
func (p *printer) unserved(r *Report) {
	if len(r.TooLarge) > 0 {
		p.say("\nServices not rendered by a start (raise actors.objectsMax, or reduce their external IPs, ports or endpoints):")
	}
	for _, s := range r.TooLarge {
		state := "not served after a start"
		if s.Kept {
			state = "its current rules remain"
		}
		p.say("  %s: %d objects in %s, %d are allowed; %s", s.Service, s.Objects, s.Domain, s.Max, state)
	}
	if len(r.Warnings) > 0 {
		p.say("\nparts of objects ignored by a start:")
	}
	for _, w := range r.Warnings {
		p.say("  %v", service.Warning(w))
	}
}

func (p *printer) summary(r *Report) {
	if !r.Differs() {
		p.say("\nNo changes: all %s are up to date.", plural.Of(r.Unchanged, "object"))
		return
	}
	var added, changed, removed, services int
	for _, g := range r.Groups {
		added, changed, removed = added+g.Added, changed+g.Changed, removed+g.Removed
		if g.Kind == OfService {
			services++
		}
	}
	p.say("\n%s would change. Objects: %d to add, %d to change, %d to remove; %s up to date.",
		plural.Of(services, "Service"), added, changed, removed, are(r.Unchanged))
}

func are(n int) string {
	if n == 1 {
		return "1 is"
	}
	return fmt.Sprintf("%d are", n)
}
