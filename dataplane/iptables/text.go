package iptables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
)

// Text prints objects, composed by the layout where they are elements, as one
// input for iptables-restore. Loaded into tables that hold nothing of ours, with
// --noflush or without, it makes what the writer makes of the objects. It is no
// input for tables in use: their order here does not keep every prefix correct,
// a chain shared with the kubelet is emptied, and hooks are inserted once more.
func Text(objects []dataplane.Object) (string, error) {
	contents := make(map[Table]*tableText)
	for i := range objects {
		o := &objects[i]
		table, hook, err := sortText(o)
		if err != nil {
			return "", err
		}
		if contents[table] == nil {
			contents[table] = &tableText{}
		}
		if hook == nil {
			contents[table].chains = append(contents[table].chains, edit{name: o.ID.Name, after: o})
		} else {
			contents[table].hooks = append(contents[table].hooks, *hook)
		}
	}
	in := &input{}
	for _, table := range [...]Table{Mangle, Filter, NAT} {
		if c := contents[table]; c != nil {
			c.print(in, table)
		}
	}
	return in.text.String(), nil
}

// tableText is what one table is to hold.
type tableText struct {
	chains []edit
	hooks  []hookPlace
}

// sortText gives the table that an object is in, and the hook that it is, nil
// for a chain.
func sortText(o *dataplane.Object) (Table, *hookPlace, error) {
	switch table := Table(o.ID.Container); {
	case o.Kind == dataplane.Element:
		return "", nil, fmt.Errorf("element %x of %s: no layout has composed it", o.ID.Name, o.ID.Container)
	case table == Mangle, table == Filter, table == NAT:
		return table, nil, nil
	}
	hook, err := parseHook(o.ID)
	return hook.table, &hook, err
}

// print writes the table. Hooks come last, when the chains that they lead to are
// there, and each at the top, as EnsureHook inserts them.
func (t *tableText) print(in *input, table Table) {
	slices.SortFunc(t.chains, func(a, b edit) int { return strings.Compare(a.name, b.name) })
	slices.SortFunc(t.hooks, func(a, b hookPlace) int { return a.number - b.number })
	in.line("*" + string(table))
	for _, c := range slices.Backward(t.chains) { // see section
		in.line(":" + c.name + " - [0:0]")
	}
	for i := range t.chains {
		in.content(&t.chains[i])
	}
	for i := range t.hooks {
		in.line("-I " + t.hooks[i].chain + " 1 " + t.hooks[i].text)
	}
	in.line("COMMIT")
}
