// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
)

// input is the text for one iptables-restore --noflush, with the owner of each line. The writer keeps
// it during the attempt: when the tool's error names a line, the owner of the line is the suspect.
type input struct {
	text bytes.Buffer
	// lines counts all lines of text, rules those that add a rule.
	lines, rules int
	// spans are ascending and do not overlap. Table and COMMIT lines are in none of them.
	spans []span
}

// span is a run of lines of one object. Lines are counted from 1, as the tools do, first and
// last included.
type span struct {
	first, last int
	owner       service.Key
	// parts holds the owner of each line of a composed object.
	parts []dataplane.Part
}

// newInput orders the chain changes of a batch so that every prefix of what lands is a correct
// state, because tables are committed one by one:
//
//  1. filter grows: changed chains hold their new rules, followed by the old ones that step 3 removes;
//  2. mangle and nat, complete;
//  3. filter shrinks to its final content.
//
// The reason is a Service that gets its first endpoint or loses its last. With the first endpoint, the
// translation (nat) must exist before the rejection (filter) is removed; otherwise a packet would leave
// the node neither rejected nor translated. With the last one, the rejection must exist before the
// translation is removed. A table may appear twice in one input: both variants commit each section
// when they reach its end (tried with 1.8.9).
//
// If nothing needs to be divided (no changes in nat and mangle, or a filter chain that only
// grows or only shrinks), everything appears once. Changes must not contain hooks.
func newInput(changes []dataplane.Change) *input {
	grow, between, shrink := phases(changes)
	in := &input{}
	if len(between[render.Mangle])+len(between[render.NAT]) == 0 {
		grow, shrink = nil, finals(changes)
	}
	in.section(render.Filter, grow, nil)
	in.section(render.Mangle, between[render.Mangle], nil)
	in.section(render.NAT, between[render.NAT], nil)
	in.section(render.Filter, shrink, nil)
	return in
}

// edit is what one section does to one chain.
type edit struct {
	name  string
	owner service.Key
	// after is the chain's new content; nil removes the chain.
	after *dataplane.Object
	// leftovers are the indexes of rules of before that the section keeps, following those of after.
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

// phases assigns the changes to the sections.
func phases(changes []dataplane.Change) (grow []edit, between map[render.Table][]edit, shrink []edit) {
	between = make(map[render.Table][]edit)
	for i := range changes {
		c := &changes[i]
		table := render.Table(c.ID.Container)
		if table != render.Filter {
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

// compare returns the lines of Before that After lacks, and how many lines of After are new.
// Equal lines are matched one to one. The Before of an unsure change may be wrong, so none of its
// rules are kept: a rule that jumps to a missing chain would fail the whole input.
func compare(c *dataplane.Change) (leaving []int, arriving int) {
	if c.After == nil {
		return nil, 0
	}
	after := render.RuleLines(c.After)
	if c.Unsure || c.Before == nil {
		return nil, len(after)
	}
	count := make(map[string]int, len(after))
	for _, line := range after {
		count[line]++
	}
	arriving = len(after)
	for i, line := range render.RuleLines(c.Before) {
		if count[line] == 0 {
			leaving = append(leaving, i)
			continue
		}
		count[line]--
		arriving--
	}
	return leaving, arriving
}

// section writes one table. Declaring a chain creates or empties it, so the result does not
// depend on what the chain held. A removed chain is declared too, so removal works whether it
// exists or not. Chains are declared in descending order: the nft variant keeps them in a sorted
// list and searches the position of a new one from the front. Hooks are inserted in their order, each
// at the top. Removals come last: by then no rewritten chain jumps to its old targets.
func (in *input) section(table render.Table, edits []edit, hooks []render.Hook) {
	if len(edits) == 0 && len(hooks) == 0 {
		return
	}
	slices.SortFunc(edits, func(a, b edit) int { return strings.Compare(a.name, b.name) })
	in.line("*" + string(table))
	for _, e := range slices.Backward(edits) {
		in.owned(e.owner, ":"+e.name+" - [0:0]")
	}
	for i := range edits {
		in.content(&edits[i])
	}
	for i := range hooks {
		in.line("-I " + hooks[i].Chain + " 1 " + hooks[i].Text())
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
	lines := render.RuleLines(e.after)
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
	old := render.RuleLines(e.before)
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

// suspect returns the Service that a line belongs to. Lines of the node or of no object have no
// suspect. The COMMIT line is one of them: the legacy programs name it for every error that only
// the kernel detects.
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

// ruleCount returns the number of rules in a chain, 0 for a removed one.
func ruleCount(o *dataplane.Object) int {
	if o == nil || o.Body == "" {
		return 0
	}
	return strings.Count(o.Body, "\n") + 1
}

// partsOf returns the owners of an object's lines, nil if the object does not have them.
func partsOf(o *dataplane.Object, lines []string) []dataplane.Part {
	if len(o.Parts()) != len(lines) {
		return nil
	}
	return o.Parts()
}

// Text prints objects as one input for iptables-restore; a layout must have composed elements.
// Loaded into tables without Sluice's rules, with --noflush or without, it has the same result as the
// writer. Do not load it into tables in use: its order does not keep every prefix correct, it empties
// the chain that the kubelet shares, and it inserts hooks again.
func Text(objects []dataplane.Object) (string, error) {
	edits, hooks := make(map[render.Table][]edit), make(map[render.Table][]render.Hook)
	for i := range objects {
		o := &objects[i]
		if o.Kind == dataplane.Element {
			return "", fmt.Errorf("element %x of %s: no layout composed it", o.ID.Name, o.ID.Container)
		}
		if table := render.Table(o.ID.Container); slices.Contains(render.Tables[:], table) {
			edits[table] = append(edits[table], edit{name: o.ID.Name, after: o})
			continue
		}
		hook, err := render.ParseHook(o.ID)
		if err != nil {
			return "", err
		}
		hooks[hook.Table] = append(hooks[hook.Table], hook)
	}
	in := &input{}
	for _, table := range render.Tables {
		slices.SortFunc(hooks[table], render.ByRow)
		in.section(table, edits[table], hooks[table])
	}
	return in.text.String(), nil
}
