// SPDX-License-Identifier: Apache-2.0

package nftmodel

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// tableKey names a table.
type tableKey struct {
	family uint8
	name   string
}

// table is one table with its content.
type table struct {
	tableKey
	handle   uint64
	userData string
	chains   map[string]*chain
	// order are the chains, oldest first.
	order []*chain
	sets  map[string]*set
	// handles numbers chains, rules and sets.
	handles uint64
}

// Attributes that package unix does not name.
const (
	tableUserData = 6 // NFTA_TABLE_USERDATA, Linux 5.10
	tableHandle   = 4 // NFTA_TABLE_HANDLE
)

// tableAttr names the table in every message: NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, ….
const tableAttr = 1

func (t *table) nextHandle() uint64 {
	t.handles++
	return t.handles
}

// table returns the table that an attribute of a message names.
func (b *batch) table(r request, f fields) (*table, error) {
	if err := f.need("a message", tableAttr); err != nil {
		return nil, err
	}
	return b.kernel.table(r.family, f.text(tableAttr))
}

func (k *Kernel) table(family uint8, name string) (*table, error) {
	t := k.tables[tableKey{family, name}]
	if t == nil {
		return nil, refusef(unix.ENOENT, "no table %s", name)
	}
	return t, nil
}

func (b *batch) newTable(r request) error {
	f, err := r.parse("a table", unix.NLM_F_CREATE|unix.NLM_F_EXCL, unix.NFTA_TABLE_NAME, unix.NFTA_TABLE_FLAGS, tableUserData)
	if err == nil {
		err = f.need("a table", unix.NFTA_TABLE_NAME)
	}
	if err == nil {
		err = f.numbers(4, unix.NFTA_TABLE_FLAGS)
	}
	if err != nil {
		return err
	}
	if flags := f.uint32(unix.NFTA_TABLE_FLAGS); flags != 0 {
		return unknownf("flags %#x of a table", flags)
	}
	k := b.kernel
	key := tableKey{r.family, f.text(unix.NFTA_TABLE_NAME)}
	if k.tables[key] != nil {
		if r.flags&unix.NLM_F_EXCL != 0 {
			return refusef(unix.EEXIST, "table %s exists", key.name)
		}
		return nil
	}
	k.handles++
	t := &table{
		tableKey: key, handle: k.handles, userData: string(f.get(tableUserData).data),
		chains: make(map[string]*chain), sets: make(map[string]*set),
	}
	b.do(func() { k.tables[key] = t }, func() { delete(k.tables, key) })
	return nil
}

// deleteTable removes a table with everything in it; without a name, all of the
// family, or of both.
func (b *batch) deleteTable(r request) error {
	f, err := r.parse("a table", 0, unix.NFTA_TABLE_NAME)
	if err != nil {
		return err
	}
	tables := b.kernel.tables
	if f.has(unix.NFTA_TABLE_NAME) {
		t, err := b.table(r, f)
		if err == nil {
			b.leaving.table(t)
			b.do(func() { delete(tables, t.tableKey) }, func() { tables[t.tableKey] = t })
		}
		return err
	}
	for key, t := range tables {
		if r.family == unix.NFPROTO_UNSPEC || r.family == key.family {
			b.leaving.table(t)
			b.do(func() { delete(tables, key) }, func() { tables[key] = t })
		}
	}
	return nil
}

// describe returns the attributes of the table.
func (t *table) describe() []byte {
	b := netlink.AppendText(nil, unix.NFTA_TABLE_NAME, t.name)
	b = netlink.AppendUint32(b, unix.NFTA_TABLE_FLAGS, 0)
	b = netlink.AppendUint32(b, unix.NFTA_TABLE_USE, uint32(len(t.chains)+len(t.sets)))
	b = netlink.AppendUint64(b, tableHandle, t.handle)
	if t.userData != "" {
		b = netlink.AppendString(b, tableUserData, t.userData)
	}
	return b
}

// remove takes a chain out of the table; restore puts it back where it was.
func (t *table) remove(c *chain) (restore func()) {
	at := slices.Index(t.order, c)
	before := t.order
	delete(t.chains, c.name)
	t.order = slices.Delete(slices.Clone(t.order), at, at+1)
	return func() {
		t.chains[c.name] = c
		t.order = before
	}
}

// chain is one chain with its rules.
type chain struct {
	table  *table
	name   string
	handle uint64
	// base is nil for a chain that packets do not come to by themselves.
	base  *base
	rules []*rule
	// text is what body has returned, empty after a change.
	text string
	// use counts the rules and elements that lead here.
	use int
}

func (c *chain) setRules(rules []*rule) { c.rules, c.text = rules, "" }

// base says where a base chain is called.
type base struct {
	kind     string // "filter" or "nat"
	hook     uint32
	priority int32
	drops    bool // by policy
	// registered orders base chains of one priority: the newest comes first.
	registered uint64
}

// Policies (linux/netfilter.h).
const (
	policyDrop   = 0
	policyAccept = 1
)

// natPriorityMin is NF_IP_PRI_CONNTRACK, behind which translations have to be.
const natPriorityMin = -200

func (b *batch) newChain(r request) error {
	f, err := r.parse("a chain", unix.NLM_F_CREATE|unix.NLM_F_EXCL, unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME,
		unix.NFTA_CHAIN_HOOK, unix.NFTA_CHAIN_POLICY, unix.NFTA_CHAIN_TYPE)
	if err == nil {
		err = f.numbers(4, unix.NFTA_CHAIN_POLICY)
	}
	if err != nil {
		return err
	}
	t, err := b.table(r, f)
	if err == nil {
		err = f.need("a chain", unix.NFTA_CHAIN_NAME)
	}
	if err != nil {
		return err
	}
	name := f.text(unix.NFTA_CHAIN_NAME)
	old := t.chains[name]
	if err := checkPolicy(f, old); err != nil {
		return err
	}
	if old != nil {
		return b.updateChain(r, f, old)
	}
	made, err := parseBase(f)
	if err != nil {
		return err
	}
	c := &chain{table: t, name: name, handle: t.nextHandle(), base: made}
	if made != nil {
		made.registered = c.handle
	}
	order := t.order
	b.do(func() { t.chains[name], t.order = c, append(order, c) },
		func() { delete(t.chains, name); t.order = order })
	return nil
}

// checkPolicy rejects a policy where there can be none.
func checkPolicy(f fields, old *chain) error {
	if !f.has(unix.NFTA_CHAIN_POLICY) {
		return nil
	}
	if old != nil && old.base == nil || old == nil && !f.has(unix.NFTA_CHAIN_HOOK) {
		return refusef(unix.EOPNOTSUPP, "a policy of a chain that is no base chain")
	}
	if policy := f.uint32(unix.NFTA_CHAIN_POLICY); policy != policyDrop && policy != policyAccept {
		return refusef(unix.EINVAL, "policy %d", policy)
	}
	return nil
}

// updateChain changes a policy; everything else of a chain stays as it is made.
func (b *batch) updateChain(r request, f fields, c *chain) error {
	if r.flags&unix.NLM_F_EXCL != 0 {
		return refusef(unix.EEXIST, "chain %s exists", c.name)
	}
	if f.has(unix.NFTA_CHAIN_HOOK) {
		if err := c.checkHook(f); err != nil {
			return err
		}
	}
	b.changed = true
	if f.has(unix.NFTA_CHAIN_POLICY) {
		before := c.base.drops
		set := func(drops bool) { c.base.drops, c.text = drops, "" }
		b.do(func() { set(f.uint32(unix.NFTA_CHAIN_POLICY) == policyDrop) }, func() { set(before) })
	}
	return nil
}

// checkHook rejects to call a chain elsewhere than before.
func (c *chain) checkHook(f fields) error {
	if c.base == nil {
		return refusef(unix.EEXIST, "chain %s exists and is no base chain", c.name)
	}
	at, err := parseHook(f)
	if err != nil {
		return err
	}
	if at.has(unix.NFTA_HOOK_HOOKNUM) && at.uint32(unix.NFTA_HOOK_HOOKNUM) != c.base.hook ||
		at.has(unix.NFTA_HOOK_PRIORITY) && int32(at.uint32(unix.NFTA_HOOK_PRIORITY)) != c.base.priority {
		return refusef(unix.EOPNOTSUPP, "chain %s exists with another hook", c.name)
	}
	if f.has(unix.NFTA_CHAIN_TYPE) {
		switch kind := f.text(unix.NFTA_CHAIN_TYPE); {
		case !isKind(kind):
			return refusef(unix.ENOENT, "chain type %s", kind)
		case kind != c.base.kind:
			return refusef(unix.EEXIST, "chain %s exists with another type", c.name)
		}
	}
	return nil
}

func isKind(kind string) bool { return kind == "filter" || kind == "nat" }

func parseHook(f fields) (fields, error) {
	at, err := parseFields("a hook", f.get(unix.NFTA_CHAIN_HOOK).data, f.get(unix.NFTA_CHAIN_HOOK).at+attrHeader,
		unix.NFTA_HOOK_HOOKNUM, unix.NFTA_HOOK_PRIORITY)
	if err == nil {
		err = at.numbers(4, unix.NFTA_HOOK_HOOKNUM, unix.NFTA_HOOK_PRIORITY)
	}
	return at, err
}

// parseBase reads where a base chain is called; nil for another chain.
func parseBase(f fields) (*base, error) {
	if !f.has(unix.NFTA_CHAIN_HOOK) {
		if f.has(unix.NFTA_CHAIN_TYPE) {
			return nil, unknownf("a type of a chain that is no base chain")
		}
		return nil, nil
	}
	at, err := parseHook(f)
	if err != nil {
		return nil, err
	}
	if !at.has(unix.NFTA_HOOK_HOOKNUM) || !at.has(unix.NFTA_HOOK_PRIORITY) {
		return nil, refusef(unix.ENOENT, "a hook without a number or a priority")
	}
	made := &base{
		kind: "filter", hook: at.uint32(unix.NFTA_HOOK_HOOKNUM), priority: int32(at.uint32(unix.NFTA_HOOK_PRIORITY)),
		drops: f.has(unix.NFTA_CHAIN_POLICY) && f.uint32(unix.NFTA_CHAIN_POLICY) == policyDrop,
	}
	if f.has(unix.NFTA_CHAIN_TYPE) {
		made.kind = f.text(unix.NFTA_CHAIN_TYPE)
	}
	return made, made.check()
}

// check rejects base chains that there cannot be.
func (b *base) check() error {
	switch {
	case !isKind(b.kind):
		return refusef(unix.ENOENT, "chain type %s", b.kind)
	case b.hook > unix.NF_INET_POST_ROUTING, b.kind == "nat" && b.hook == unix.NF_INET_FORWARD:
		return refusef(unix.EOPNOTSUPP, "a %s chain at hook %d", b.kind, b.hook)
	case b.kind == "nat" && b.priority <= natPriorityMin:
		return refusef(unix.EOPNOTSUPP, "a nat chain of priority %d, before connections are tracked", b.priority)
	}
	return nil
}

// chain returns the chain that an attribute names.
func (t *table) chain(name string) (*chain, error) {
	c := t.chains[name]
	if c == nil {
		return nil, refusef(unix.ENOENT, "no chain %s", name)
	}
	return c, nil
}

// deleteChain removes a chain with its rules, unless something leads there, be it
// one of those rules.
func (b *batch) deleteChain(r request) error {
	f, err := r.parse("a chain", 0, unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME)
	if err != nil {
		return err
	}
	t, err := b.table(r, f)
	if err == nil {
		err = f.need("a chain", unix.NFTA_CHAIN_NAME)
	}
	if err != nil {
		return err
	}
	c, err := t.chain(f.text(unix.NFTA_CHAIN_NAME))
	if err != nil {
		return err
	}
	use := c.use
	b.leaving.chains = append(b.leaving.chains, c)
	b.leaving.changes(c)
	b.flush(c)
	if use > 0 {
		return refusef(unix.EBUSY, "%d rules and elements lead to chain %s", use, c.name)
	}
	restore := func() {}
	b.do(func() { restore = t.remove(c) }, func() { restore() })
	return nil
}

// describe returns the attributes of the chain.
func (c *chain) describe() []byte {
	b := netlink.AppendText(nil, unix.NFTA_CHAIN_TABLE, c.table.name)
	b = netlink.AppendUint64(b, unix.NFTA_CHAIN_HANDLE, c.handle)
	b = netlink.AppendText(b, unix.NFTA_CHAIN_NAME, c.name)
	return netlink.AppendUint32(c.appendBase(b), unix.NFTA_CHAIN_USE, uint32(c.use+len(c.rules)))
}

// appendBase adds the attributes of a base chain.
func (c *chain) appendBase(b []byte) []byte {
	if c.base == nil {
		return b
	}
	policy := uint32(policyAccept)
	if c.base.drops {
		policy = policyDrop
	}
	b, mark := netlink.Nest(b, unix.NFTA_CHAIN_HOOK)
	b = netlink.AppendUint32(b, unix.NFTA_HOOK_HOOKNUM, c.base.hook)
	b = netlink.AppendUint32(b, unix.NFTA_HOOK_PRIORITY, uint32(c.base.priority))
	b = netlink.End(b, mark)
	b = netlink.AppendUint32(b, unix.NFTA_CHAIN_POLICY, policy)
	return netlink.AppendText(b, unix.NFTA_CHAIN_TYPE, c.base.kind)
}
