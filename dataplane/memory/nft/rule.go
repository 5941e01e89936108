package nft

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// rule is one rule.
type rule struct {
	chain  *chain
	handle uint64
	exprs  []expr
	// text are the expressions as they were given, userData the comment and the
	// like.
	text, userData string
}

// newRule adds a rule at the end of a chain, or at its start.
func (b *batch) newRule(r request) error {
	f, err := r.parse("a rule", unix.NLM_F_CREATE|unix.NLM_F_APPEND, unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN,
		unix.NFTA_RULE_EXPRESSIONS, unix.NFTA_RULE_USERDATA)
	if err != nil {
		return err
	}
	c, err := b.ruleChain(r, f)
	if err != nil {
		return err
	}
	if r.flags&unix.NLM_F_CREATE == 0 {
		return refusef(unix.EINVAL, "a rule that is not to be created")
	}
	made := &rule{chain: c, text: string(f[unix.NFTA_RULE_EXPRESSIONS].data), userData: string(f[unix.NFTA_RULE_USERDATA].data)}
	p := &exprParser{table: c.table}
	if made.exprs, err = p.exprs(f[unix.NFTA_RULE_EXPRESSIONS]); err != nil {
		return err
	}
	made.handle = c.table.nextHandle()
	before := c.rules
	b.do(func() {
		if r.flags&unix.NLM_F_APPEND != 0 {
			c.rules = append(before, made)
		} else {
			c.rules = slices.Insert(slices.Clone(before), 0, made)
		}
	}, func() { c.rules = before })
	b.refer(made, 1)
	b.suspicious[c.table] = true
	return nil
}

// ruleChain gives the chain that a message about rules names.
func (b *batch) ruleChain(r request, f fields) (*chain, error) {
	t, err := b.table(r, f)
	if err == nil {
		err = f.need("a rule", unix.NFTA_RULE_CHAIN)
	}
	if err != nil {
		return nil, err
	}
	return t.chain(f.text(unix.NFTA_RULE_CHAIN))
}

// deleteRules removes all rules of a chain.
func (b *batch) deleteRules(r request) error {
	f, err := r.parse("a deletion of rules", 0, unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN)
	if err != nil {
		return err
	}
	c, err := b.ruleChain(r, f)
	if err == nil {
		b.flush(c)
	}
	return err
}

func (b *batch) flush(c *chain) {
	if len(c.rules) == 0 {
		return
	}
	before := c.rules
	b.do(func() { c.rules = nil }, func() { c.rules = before })
	for _, r := range before {
		b.refer(r, -1)
	}
}

// refer counts what a rule refers to.
func (b *batch) refer(r *rule, n int) {
	for _, e := range r.exprs {
		if e, ok := e.(referrer); ok {
			for _, use := range e.uses() {
				b.count(use, n)
			}
		}
	}
}

// describe gives the attributes of the rule.
func (r *rule) describe() []byte {
	b := wire.AppendText(nil, unix.NFTA_RULE_TABLE, r.chain.table.name)
	b = wire.AppendText(b, unix.NFTA_RULE_CHAIN, r.chain.name)
	b = wire.AppendUint64(b, unix.NFTA_RULE_HANDLE, r.handle)
	b = wire.AppendString(b, unix.NFTA_RULE_EXPRESSIONS, r.text)
	if r.userData != "" {
		b = wire.AppendString(b, unix.NFTA_RULE_USERDATA, r.userData)
	}
	return b
}

// step names the rule in a trace: its table, its chain, and its place there.
func (r *rule) step() string {
	family := "ip"
	if r.chain.table.family == unix.NFPROTO_IPV6 {
		family = "ip6"
	}
	return fmt.Sprintf("%s %s %s #%d", family, r.chain.table.name, r.chain.name, slices.Index(r.chain.rules, r)+1)
}
