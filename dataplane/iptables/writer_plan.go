package iptables

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// plan is a batch made ready for the tool. It lives for one attempt.
type plan struct {
	batch *dataplane.Batch
	// tables are those that the batch touches, in the order they are read.
	tables []Table
	// leaving and coming are the hooks that go and come, by number; absent are
	// those that come and are certain not to be there.
	leaving, coming, absent []hookEdit
	// chains are the changes that go into inputs, divided by limits; input is
	// the one that was written last. When hooks go, the chains that go are apart
	// from them.
	chains, going []dataplane.Change
	limits        StageLimits
	input         *input
	// vague are changes of shared chains that only have to exist, and may or
	// may not do so.
	vague []dataplane.Change
}

// hookEdit is a hook with the place it belongs to.
type hookEdit struct {
	hookPlace
	rule []string
}

// newPlan sorts the changes of a batch into hooks and chains. An identity that
// this backend cannot have made is an error.
//
// Strays are hooks, by the chain that they lead to, that no release of ours knows. They
// go with that chain.
func newPlan(batch *dataplane.Batch, limits StageLimits, strays map[dataplane.ID][]hookEdit) (*plan, error) {
	p := &plan{batch: batch, limits: limits}
	p.chains = make([]dataplane.Change, 0, len(batch.Changes))
	touched := make(map[Table]bool)
	for _, c := range batch.Changes {
		table, err := p.sort(c)
		if err != nil {
			return nil, fmt.Errorf("batch %d: %w", batch.Number, err)
		}
		touched[table] = true
		if c.After == nil {
			p.leaving = append(p.leaving, strays[c.ID]...)
		}
	}
	p.partRemovals()
	for _, table := range [...]Table{Mangle, Filter, NAT} {
		if touched[table] {
			p.tables = append(p.tables, table)
		}
	}
	for _, hooks := range [...][]hookEdit{p.leaving, p.coming, p.absent} {
		slices.SortFunc(hooks, func(a, b hookEdit) int { return cmp.Compare(a.number, b.number) })
	}
	return p, nil
}

// sort puts a change where it belongs, and tells which table it touches.
func (p *plan) sort(c dataplane.Change) (Table, error) {
	switch table := Table(c.ID.Container); table {
	case Mangle, Filter, NAT:
		p.sortChain(table, c)
		return table, nil
	}
	place, err := parseHook(c.ID)
	if err != nil {
		return "", err
	}
	hook := hookEdit{hookPlace: place, rule: splitRule(place.text)}
	// Those that lead to what is the kubelet's as well may be inserted by the
	// kubelet at any moment, and are never removed, so that a second copy would stay.
	shared := isShared(place.table, ruleTarget(place.text))
	switch {
	case c.After != nil && c.Before == nil && !c.Unsure && !shared:
		p.absent = append(p.absent, hook)
	case c.After != nil:
		p.coming = append(p.coming, hook)
	case !shared:
		p.leaving = append(p.leaving, hook)
	}
	return place.table, nil
}

// sortChain leaves out what must not be done to a chain that the kubelet has a
// share in: removing it, and emptying it when it only has to exist.
func (p *plan) sortChain(table Table, c dataplane.Change) {
	switch {
	case !isShared(table, c.ID.Name):
		p.chains = append(p.chains, c)
	case c.After == nil:
	case c.After.Body != "":
		p.chains = append(p.chains, c)
	case c.Before == nil || c.Unsure:
		p.vague = append(p.vague, c)
	}
}

// partRemovals sets the chains that go apart when hooks go. Such a hook may be the one
// that leads packets to all Services, by another release's words: it has to stay until
// what comes in its place is there, and the chains that it leads to as long.
func (p *plan) partRemovals() {
	if len(p.leaving) == 0 {
		return
	}
	stay := make([]dataplane.Change, 0, len(p.chains))
	for _, c := range p.chains {
		if c.After == nil {
			p.going = append(p.going, c)
		} else {
			stay = append(stay, c)
		}
	}
	p.chains = stay
}

// carryOut runs the steps in order and stops at the first that fails. It fills
// in what was written and who is suspect.
func (p *plan) carryOut(ctx context.Context, tool Tool, receipt *dataplane.Receipt) error {
	if err := p.clarify(ctx, tool, receipt); err != nil {
		return err
	}
	for _, changes := range stages(p.chains, p.limits) {
		if err := p.restore(ctx, tool, changes, receipt); err != nil {
			return err
		}
	}
	if err := p.insert(ctx, tool, receipt); err != nil {
		return err
	}
	for _, h := range p.coming {
		receipt.Written.Calls++
		if err := tool.EnsureHook(ctx, h.table, h.chain, h.rule); err != nil {
			return err
		}
		receipt.Written.Objects++
	}
	for _, h := range p.leaving {
		receipt.Written.Calls++
		if err := tool.RemoveHook(ctx, h.table, h.chain, h.rule); err != nil {
			return err
		}
		receipt.Written.Objects++
	}
	return p.restore(ctx, tool, p.going, receipt)
}

// insert puts the hooks that are certain to be absent on top of their chains, in one
// input: at the start that is all of them, and asking for each first takes two
// processes per hook.
func (p *plan) insert(ctx context.Context, tool Tool, receipt *dataplane.Receipt) error {
	if len(p.absent) == 0 {
		return nil
	}
	text := hookInput(p.absent)
	receipt.Written.Calls++
	receipt.Written.Lines += len(p.absent)
	receipt.Written.Bytes += len(text)
	if err := tool.Restore(ctx, text); err != nil {
		return err
	}
	receipt.Written.Objects += len(p.absent)
	return nil
}

// hookInput is an input that inserts hooks at position 1, in the order given.
func hookInput(hooks []hookEdit) []byte {
	var text bytes.Buffer
	for _, table := range [...]Table{Mangle, Filter, NAT} {
		begun := false
		for _, h := range hooks {
			if h.table != table {
				continue
			}
			if !begun {
				fmt.Fprintf(&text, "*%s\n", table)
				begun = true
			}
			fmt.Fprintf(&text, "-I %s 1 %s\n", h.chain, h.text)
		}
		if begun {
			text.WriteString("COMMIT\n")
		}
	}
	return text.Bytes()
}

// restore writes one input.
func (p *plan) restore(ctx context.Context, tool Tool, changes []dataplane.Change, receipt *dataplane.Receipt) error {
	if len(changes) == 0 {
		return nil
	}
	p.input = newInput(changes)
	receipt.Written.Calls++
	receipt.Written.Lines += p.input.rules
	receipt.Written.Bytes += p.input.text.Len()
	if err := tool.Restore(ctx, p.input.text.Bytes()); err != nil {
		receipt.Suspects = p.suspects(err)
		return err
	}
	receipt.Written.Objects += len(changes)
	return nil
}

// clarify adds to the chains those shared ones that do not exist.
func (p *plan) clarify(ctx context.Context, tool Tool, receipt *dataplane.Receipt) error {
	for _, c := range p.vague {
		receipt.Written.Calls++
		exists, err := hasChain(ctx, tool, Table(c.ID.Container), c.ID.Name)
		if err != nil {
			return err
		}
		if !exists {
			p.chains = append(p.chains, c)
		}
	}
	return nil
}

// suspects follows the line that the tool named to its owner. Who was in the
// way when a lock was held or a child killed is no suspect.
func (p *plan) suspects(err error) []service.Key {
	toolErr, ok := errors.AsType[*ToolError](err)
	if !ok || (toolErr.Outcome != dataplane.Rejected && toolErr.Outcome != dataplane.Unsupported) {
		return nil
	}
	key, ok := p.input.suspect(toolErr.Line)
	if !ok {
		return nil
	}
	return []service.Key{key}
}

// readBack asks the kernel about every object of the batch. It gives nothing
// when one of the tables cannot be read.
func (p *plan) readBack(ctx context.Context, tool Tool, receipt *dataplane.Receipt) (map[dataplane.ID]*dataplane.Object, error) {
	tables := make(map[Table]*saved, len(p.tables))
	for _, table := range p.tables {
		receipt.Written.Calls++
		s, err := readTable(ctx, tool, table)
		if err != nil {
			return nil, err
		}
		tables[table] = s
	}
	certain := make(map[dataplane.ID]*dataplane.Object, len(p.batch.Changes))
	for i := range p.batch.Changes {
		c := &p.batch.Changes[i]
		if s := tables[Table(c.ID.Container)]; s != nil {
			certain[c.ID] = chainNow(c, s)
			continue
		}
		place, err := parseHook(c.ID)
		if err != nil {
			return nil, err // cannot be: newPlan has parsed it before
		}
		certain[c.ID] = nil
		if tables[place.table].has(place.chain, place.text) {
			certain[c.ID] = place.object()
		}
	}
	return certain, nil
}

// chainNow gives what the kernel holds of a chain: one of the two objects that
// the change names where it is one of them, for those know the owners of their
// lines, and the kernel's own account otherwise.
func chainNow(c *dataplane.Change, s *saved) *dataplane.Object {
	now := s.object(c.ID.Name)
	switch {
	case now == nil:
		return nil
	case dataplane.Same(now, c.After), c.After != nil && onlyExists(c.After):
		return c.After
	case dataplane.Same(now, c.Before):
		return c.Before
	}
	return now
}
