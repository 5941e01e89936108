// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
)

// plan has the steps of one batch. It exists for one attempt.
type plan struct {
	batch *dataplane.Batch
	// tables are those that the batch touches, in the order of reading.
	tables []render.Table
	// deleteHooks and ensureHooks are in the order of their rows. insertHooks are those that
	// certainly do not exist yet.
	deleteHooks, ensureHooks, insertHooks []render.Hook
	// chains are the changes that inputs for iptables-restore make, divided by limits. If hooks are
	// deleted, the deleted chains are in deleteChains instead.
	chains, deleteChains []dataplane.Change
	limits               StageLimits
	// input is the last one written.
	input *input
	// maybeCreate are changes of shared chains that only have to exist and may exist already.
	maybeCreate []dataplane.Change
}

// newPlan sorts the changes of a batch into hooks and chains. It returns an error for an identity that
// is not of this backend. foreignHooks are rules of built-in chains that are not hooks of this release,
// by their target chain; they are deleted together with that chain.
func newPlan(
	batch *dataplane.Batch, limits StageLimits, foreignHooks map[dataplane.ID][]render.Hook,
) (*plan, error) {
	p := &plan{batch: batch, limits: limits}
	p.chains = make([]dataplane.Change, 0, len(batch.Changes))
	touched := make(map[render.Table]bool)
	for _, c := range batch.Changes {
		table, err := p.sort(c)
		if err != nil {
			return nil, fmt.Errorf("batch %d: %w", batch.Number, err)
		}
		touched[table] = true
		if c.After == nil {
			p.deleteHooks = append(p.deleteHooks, foreignHooks[c.ID]...)
		}
	}
	p.partRemovals()
	for _, table := range render.Tables {
		if touched[table] {
			p.tables = append(p.tables, table)
		}
	}
	for _, hooks := range [...][]render.Hook{p.deleteHooks, p.ensureHooks, p.insertHooks} {
		slices.SortFunc(hooks, render.ByRow)
	}
	return p, nil
}

// sort adds a change to the field for its kind and returns the table that it touches.
func (p *plan) sort(c dataplane.Change) (render.Table, error) {
	if table := render.Table(c.ID.Container); slices.Contains(render.Tables[:], table) {
		p.sortChain(table, c)
		return table, nil
	}
	hook, err := render.ParseHook(c.ID)
	if err != nil {
		return "", err
	}
	// The kubelet may insert a hook to a shared chain at any moment, so such a hook may always exist
	// already. It is never removed either: a second copy would stay.
	shared := render.IsShared(hook.Table, hook.Target)
	switch {
	case c.After != nil && c.Before == nil && !c.Unsure && !shared:
		p.insertHooks = append(p.insertHooks, hook)
	case c.After != nil:
		p.ensureHooks = append(p.ensureHooks, hook)
	case !shared:
		p.deleteHooks = append(p.deleteHooks, hook)
	}
	return hook.Table, nil
}

// LeavesOut reports whether a writer ignores a change because the kubelet shares the chain: such a
// chain is never removed, and never emptied if it only has to exist.
func LeavesOut(c *dataplane.Change) bool {
	if table := render.Table(c.ID.Container); slices.Contains(render.Tables[:], table) {
		return render.IsShared(table, c.ID.Name) && (c.After == nil || c.After.Body == "" && c.Before != nil)
	}
	hook, err := render.ParseHook(c.ID)
	return err == nil && c.After == nil && render.IsShared(hook.Table, hook.Target)
}

// sortChain ignores two changes of a chain that the kubelet shares: its removal, and emptying it if it
// only has to exist.
func (p *plan) sortChain(table render.Table, c dataplane.Change) {
	switch {
	case !render.IsShared(table, c.ID.Name):
		p.chains = append(p.chains, c)
	case c.After == nil:
	case c.After.Body != "":
		p.chains = append(p.chains, c)
	case c.Before == nil || c.Unsure:
		p.maybeCreate = append(p.maybeCreate, c)
	}
}

// partRemovals separates the removed chains if hooks are deleted, too. Such a hook may be another
// release's version of the hook that sends packets to all Services. It must stay until its replacement
// exists, and so must the chains that it jumps to.
func (p *plan) partRemovals() {
	if len(p.deleteHooks) == 0 {
		return
	}
	var stay []dataplane.Change
	for _, c := range p.chains {
		if c.After == nil {
			p.deleteChains = append(p.deleteChains, c)
		} else {
			stay = append(stay, c)
		}
	}
	p.chains = stay
}

// carryOut runs the steps in order and stops at the first that fails. It adds the written numbers and
// the suspects to the receipt.
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
	each := func(hooks []render.Hook, do func(context.Context, render.Table, string, []string) error) error {
		for _, h := range hooks {
			receipt.Written.Calls++
			if err := do(ctx, h.Table, h.Chain, h.Rule); err != nil {
				return err
			}
			receipt.Written.Objects++
		}
		return nil
	}
	if err := each(p.ensureHooks, tool.EnsureHook); err != nil {
		return err
	}
	if err := each(p.deleteHooks, tool.RemoveHook); err != nil {
		return err
	}
	return p.restore(ctx, tool, p.deleteChains, receipt)
}

// clarify adds the missing chains of maybeCreate to chains.
func (p *plan) clarify(ctx context.Context, tool Tool, receipt *dataplane.Receipt) error {
	for _, c := range p.maybeCreate {
		receipt.Written.Calls++
		exists, err := tool.HasChain(ctx, render.Table(c.ID.Container), c.ID.Name)
		if err != nil {
			return err
		}
		if !exists {
			p.chains = append(p.chains, c)
		}
	}
	return nil
}

// insert puts the hooks that certainly do not exist yet on top of their chains, with one input. At
// startup these are all hooks; checking and inserting each one would take two processes per hook.
func (p *plan) insert(ctx context.Context, tool Tool, receipt *dataplane.Receipt) error {
	if len(p.insertHooks) == 0 {
		return nil
	}
	in := &input{}
	for _, table := range render.Tables {
		in.section(table, nil, slices.DeleteFunc(slices.Clone(p.insertHooks), func(h render.Hook) bool {
			return h.Table != table
		}))
	}
	receipt.Written.Calls++
	receipt.Written.Lines += len(p.insertHooks)
	receipt.Written.Bytes += in.text.Len()
	if err := tool.Restore(ctx, in.text.Bytes()); err != nil {
		return err
	}
	receipt.Written.Objects += len(p.insertHooks)
	return nil
}

// restore writes one input.
func (p *plan) restore(
	ctx context.Context, tool Tool, changes []dataplane.Change, receipt *dataplane.Receipt,
) error {
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

// suspects returns the owner of the line that the tool named. If a lock was held or a child was
// killed, there is no suspect.
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

// readBack reads the state of each object of the batch from the kernel. It returns an error if one of
// the tables cannot be read.
func (p *plan) readBack(
	ctx context.Context, tool Tool, of Ownership, receipt *dataplane.Receipt,
) (map[dataplane.ID]*dataplane.Object, error) {
	read := make(map[render.Table]*saved, len(p.tables))
	for _, table := range p.tables {
		receipt.Written.Calls++
		s, err := readTable(ctx, tool, table, of)
		if err != nil {
			return nil, err
		}
		read[table] = s
	}
	certain := make(map[dataplane.ID]*dataplane.Object, len(p.batch.Changes))
	for i := range p.batch.Changes {
		c := &p.batch.Changes[i]
		if s := read[render.Table(c.ID.Container)]; s != nil {
			certain[c.ID] = chainNow(c, s)
			continue
		}
		hook, err := render.ParseHook(c.ID)
		if err != nil {
			return nil, err // impossible: newPlan already parsed it
		}
		certain[c.ID] = nil
		if read[hook.Table].has(hook.Chain, hook.Text()) {
			o := hook.Object()
			certain[c.ID] = &o
		}
	}
	return certain, nil
}

// chainNow returns a chain as it is in the kernel. If it equals After or Before of the change, it
// returns that object, which has the owners of its lines.
func chainNow(c *dataplane.Change, s *saved) *dataplane.Object {
	now := s.object(c.ID.Name)
	switch {
	case now == nil:
		return nil
	case dataplane.Same(now, c.After), c.After != nil && render.OnlyExists(c.After):
		return c.After
	case dataplane.Same(now, c.Before):
		return c.Before
	}
	return now
}

// StageLimits limit the inputs into which the new chains of a large batch are divided; zero means no
// limit. The nft variant needs them: the time of its user space grows with the square of the chains
// in one input, and in an unprivileged user namespace one transaction must fit into the socket
// buffer. Inputs for the legacy variant must not be divided, because each one costs a copy of the
// whole table. Measurements: docs/adr/0001.
type StageLimits struct {
	// Chains and Rules are the most that one input may hold, unless a single chain has more
	// rules.
	Chains, Rules int
}

// exceeded reports whether an input of this size is too large.
func (l StageLimits) exceeded(chains, rules int) bool {
	return (l.Chains > 0 && chains > l.Chains) || (l.Rules > 0 && rules > l.Rules)
}

// stages divides the chain changes of a batch into inputs. Only chains of nat that are certainly new
// are written before the last input: no rule jumps to them until the last input landed, so if a write
// stops earlier, packets are handled as before. A chain is written after those that it jumps to. All
// changes with an effect on packets stay together.
func stages(changes []dataplane.Change, limits StageLimits) [][]dataplane.Change {
	rules := 0
	for i := range changes {
		rules += ruleCount(changes[i].After)
	}
	if !limits.exceeded(len(changes), rules) {
		return [][]dataplane.Change{changes}
	}
	fresh, rest := freshChains(changes)
	var all [][]dataplane.Change
	var piece []dataplane.Change
	rules = 0
	for _, c := range fresh {
		more := ruleCount(c.After)
		if len(piece) > 0 && limits.exceeded(len(piece)+1, rules+more) {
			all = append(all, piece)
			piece, rules = nil, 0
		}
		piece, rules = append(piece, *c), rules+more
	}
	if len(piece) > 0 {
		all = append(all, piece)
	}
	if len(rest) > 0 {
		all = append(all, rest)
	}
	return all
}

// freshChains separates the chains of nat that are certainly not in the kernel, in the order of
// their references, from the other changes. A new chain that jumps to one of unknown state is not
// fresh: that chain is written with the last input, and may not exist before.
func freshChains(changes []dataplane.Change) (fresh []*dataplane.Change, rest []dataplane.Change) {
	var candidates []*dataplane.Change
	late := make(map[dataplane.ID]bool)
	for i := range changes {
		c := &changes[i]
		if c.ID.Container == string(render.NAT) && c.Before == nil && !c.Unsure && c.After != nil {
			candidates = append(candidates, c)
			continue
		}
		late[c.ID] = c.Unsure
		rest = append(rest, *c)
	}
	for _, c := range byReference(candidates) {
		if slices.ContainsFunc(c.After.Refs(), func(id dataplane.ID) bool { return late[id] }) {
			late[c.ID] = true
			rest = append(rest, *c)
		} else {
			fresh = append(fresh, c)
		}
	}
	return fresh, rest
}

// byReference orders chains so that each comes after those it refers to. There are no loops: the
// kernel rejects them.
func byReference(chains []*dataplane.Change) []*dataplane.Change {
	waiting := make(map[dataplane.ID]*dataplane.Change, len(chains))
	for _, c := range chains {
		waiting[c.ID] = c
	}
	ordered := make([]*dataplane.Change, 0, len(chains))
	var visit func(c *dataplane.Change)
	visit = func(c *dataplane.Change) {
		delete(waiting, c.ID)
		for _, ref := range c.After.Refs() {
			if to := waiting[ref]; to != nil {
				visit(to)
			}
		}
		ordered = append(ordered, c)
	}
	for _, c := range chains {
		if waiting[c.ID] != nil {
			visit(c)
		}
	}
	return ordered
}
