package iptables

import (
	"bytes"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// input is the text for one iptables-restore --noflush, and whose each of its
// lines is. It is kept for as long as the batch is in flight: without the
// owners there is nobody to suspect when the tool names a line.
type input struct {
	text bytes.Buffer
	// lines and rules count what text holds: all lines, and those that add a
	// rule.
	lines, rules int
	// spans are ascending and do not overlap; table and COMMIT lines are in
	// none of them.
	spans []span
}

// span is a run of lines of one object. Lines are counted from 1, as the tools
// do, first and last included.
type span struct {
	first, last int
	owner       service.Key
	// parts tells the owner of each line of a composed object.
	parts []dataplane.Part
}

// newInput orders the chain changes of a batch so that every prefix of what
// lands is a correct state, for tables are committed one by one:
//
//  1. filter grows: changed chains hold their new rules, then those old ones
//     that are to go;
//  2. mangle and nat, complete;
//  3. filter shrinks to its final content.
//
// The reason is a Service between no endpoints and some. Its first endpoint
// must be translated (nat) before the refusal (filter) goes, or a packet would
// leave unrefused and untranslated; its last one must be refused before the
// translation goes. A table may appear twice in one input: both variants commit
// each section when they reach its end (tried with 1.8.9).
//
// What does not need to be parted is not: without changes in nat and mangle,
// and for a filter chain that only grows or only shrinks, everything stands
// once. Changes must not hold hooks.
func newInput(changes []dataplane.Change) *input {
	grow, between, shrink := phases(changes)
	in := &input{}
	if len(between[Mangle])+len(between[NAT]) == 0 {
		grow, shrink = nil, finals(changes)
	}
	in.section(Filter, grow)
	in.section(Mangle, between[Mangle])
	in.section(NAT, between[NAT])
	in.section(Filter, shrink)
	return in
}

// edit is what one section does to one chain.
type edit struct {
	name  string
	owner service.Key
	// after is the chain's new content; nil removes the chain.
	after *dataplane.Object
	// leftovers are rules of before, by line, that stay behind those of after
	// for now.
	before    *dataplane.Object
	leftovers []int
}

func finalEdit(c *dataplane.Change) edit {
	return edit{name: c.ID.Name, owner: c.Owner, after: c.After}
}

func finals(changes []dataplane.Change) []edit {
	edits := make([]edit, 0, len(changes))
	for i := range changes {
		edits = append(edits, finalEdit(&changes[i]))
	}
	return edits
}

// phases deals the changes out to the sections.
func phases(changes []dataplane.Change) (grow []edit, between map[Table][]edit, shrink []edit) {
	between = make(map[Table][]edit)
	for i := range changes {
		c := &changes[i]
		table := Table(c.ID.Container)
		if table != Filter {
			between[table] = append(between[table], finalEdit(c))
			continue
		}
		switch leaving, arriving := compare(c); {
		case c.After == nil:
			shrink = append(shrink, finalEdit(c))
		case len(leaving) == 0:
			grow = append(grow, finalEdit(c))
		case arriving == 0:
			shrink = append(shrink, finalEdit(c))
		default:
			union := finalEdit(c)
			union.before, union.leftovers = c.Before, leaving
			grow = append(grow, union)
			shrink = append(shrink, finalEdit(c))
		}
	}
	return grow, between, shrink
}

// compare gives the lines of Before that After lacks, and how many lines of
// After are new; equal lines are matched one to one. What an unsure change had
// before cannot be relied on, so nothing of it is kept: a rule that leads to a
// chain that is no longer there would spoil the whole input.
func compare(c *dataplane.Change) (leaving []int, arriving int) {
	if c.After == nil {
		return nil, 0
	}
	after := ruleLines(c.After)
	if c.Unsure || c.Before == nil {
		return nil, len(after)
	}
	count := make(map[string]int, len(after))
	for _, line := range after {
		count[line]++
	}
	arriving = len(after)
	for i, line := range ruleLines(c.Before) {
		if count[line] == 0 {
			leaving = append(leaving, i)
			continue
		}
		count[line]--
		arriving--
	}
	return leaving, arriving
}

// section writes one table. Declaring a chain creates or empties it, so that
// what follows does not depend on what it held; a removed chain is declared
// too, which makes removal work whether it exists or not. Removals come last:
// by then every chain that is rewritten here has let go of its old targets.
func (in *input) section(table Table, edits []edit) {
	if len(edits) == 0 {
		return
	}
	slices.SortFunc(edits, func(a, b edit) int { return strings.Compare(a.name, b.name) })
	in.line("*" + string(table))
	// The nft variant keeps chains in a list sorted by name, and finds the
	// place of a new one from the front: descending order is linear.
	for _, e := range slices.Backward(edits) {
		in.owned(e.owner, ":"+e.name+" - [0:0]")
	}
	for i := range edits {
		in.content(&edits[i])
	}
	for i := range edits {
		if edits[i].after == nil {
			in.owned(edits[i].owner, "-X "+edits[i].name)
		}
	}
	in.line("COMMIT")
}

// content writes the rules of one chain.
func (in *input) content(e *edit) {
	if e.after == nil {
		return
	}
	lines := ruleLines(e.after)
	if len(lines) > 0 {
		in.spans = append(in.spans, span{
			first: in.lines + 1, last: in.lines + len(lines), owner: e.owner, parts: partsOf(e.after, lines),
		})
	}
	for _, line := range lines {
		in.rule(e.name, line)
	}
	if len(e.leftovers) == 0 {
		return
	}
	old := ruleLines(e.before)
	parts := partsOf(e.before, old)
	for _, i := range e.leftovers {
		s := span{first: in.lines + 1, last: in.lines + 1, owner: e.owner}
		if parts != nil {
			s.parts = parts[i : i+1]
		}
		in.spans = append(in.spans, s)
		in.rule(e.name, old[i])
	}
}

func (in *input) rule(chain, rule string) {
	in.rules++
	in.text.WriteString("-A ")
	in.text.WriteString(chain)
	in.text.WriteByte(' ')
	in.line(rule)
}

// owned writes a line that belongs to an object as a whole.
func (in *input) owned(owner service.Key, line string) {
	in.line(line)
	in.spans = append(in.spans, span{first: in.lines, last: in.lines, owner: owner})
}

func (in *input) line(line string) {
	in.text.WriteString(line)
	in.text.WriteByte('\n')
	in.lines++
}

// suspect gives the Service that a line belongs to. Nobody is suspect of a line
// that belongs to the node or to no object; the commit line is one of those,
// and the legacy programs name it for any fault that only the kernel found.
func (in *input) suspect(line int) (service.Key, bool) {
	i, found := slices.BinarySearchFunc(in.spans, line, func(s span, line int) int {
		switch {
		case s.last < line:
			return -1
		case s.first > line:
			return 1
		}
		return 0
	})
	if !found {
		return service.Key{}, false
	}
	owner := in.spans[i].owner
	if parts := in.spans[i].parts; parts != nil {
		owner = parts[line-in.spans[i].first].Owner
	}
	return owner, owner != service.Node
}

// ruleLines cuts a chain's body into its rules; a chain without rules has none.
func ruleLines(o *dataplane.Object) []string {
	if o.Body == "" {
		return nil
	}
	return strings.Split(o.Body, "\n")
}

// partsOf gives the owners of an object's lines, nil when they are not told.
func partsOf(o *dataplane.Object, lines []string) []dataplane.Part {
	if len(o.Parts) != len(lines) {
		return nil
	}
	return o.Parts
}
