// SPDX-License-Identifier: Apache-2.0

package nftmodel

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// rule is one rule.
type rule struct {
	chain  *chain
	handle uint64
	exprs  []expr
	// text are the expressions as they were given, userData the comment and the
	// like.
	text, userData string
	// described is what describe has returned.
	described []byte
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
	made := &rule{chain: c, text: string(f.get(unix.NFTA_RULE_EXPRESSIONS).data), userData: string(f.get(unix.NFTA_RULE_USERDATA).data)}
	p := &exprParser{table: c.table}
	if made.exprs, err = p.exprs(f.get(unix.NFTA_RULE_EXPRESSIONS)); err != nil {
		return err
	}
	made.handle = c.table.nextHandle()
	before := c.rules
	b.leaving.changes(c)
	b.do(func() {
		if r.flags&unix.NLM_F_APPEND != 0 {
			c.setRules(append(before, made))
		} else {
			c.setRules(slices.Insert(slices.Clone(before), 0, made))
		}
	}, func() { c.setRules(before) })
	b.refer(made, 1)
	b.suspicious[c.table] = true
	return nil
}

// ruleChain returns the chain that a message about rules names.
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
	b.leaving.changes(c)
	b.do(func() { c.setRules(nil) }, func() { c.setRules(before) })
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

// describe returns the attributes of the rule. They are not to be changed.
func (r *rule) describe() []byte {
	if r.described != nil {
		return r.described
	}
	b := netlink.AppendText(nil, unix.NFTA_RULE_TABLE, r.chain.table.name)
	b = netlink.AppendText(b, unix.NFTA_RULE_CHAIN, r.chain.name)
	b = netlink.AppendUint64(b, unix.NFTA_RULE_HANDLE, r.handle)
	b = netlink.AppendString(b, unix.NFTA_RULE_EXPRESSIONS, r.text)
	if r.userData != "" {
		b = netlink.AppendString(b, unix.NFTA_RULE_USERDATA, r.userData)
	}
	r.described = b
	return b
}

// verdict is what a rule ends with.
type verdict struct {
	code int32
	// chain is where a jump or a goto leads.
	chain *chain
}

// Verdicts of netfilter; those of nf_tables are NFT_….
const (
	verdictDrop   = 0
	verdictAccept = 1
)

// parseVerdict reads NFTA_DATA_VERDICT. It may lead to a chain of the table.
func parseVerdict(t *table, nest field) (*verdict, error) {
	f, err := parseFields("a verdict", nest.data, nest.at+attrHeader, unix.NFTA_DATA_VALUE, unix.NFTA_DATA_VERDICT)
	if err != nil {
		return nil, err
	}
	if len(f.list) != 1 || !f.has(unix.NFTA_DATA_VERDICT) {
		return nil, refusef(unix.EINVAL, "a value or nothing where a verdict should be")
	}
	inner := f.get(unix.NFTA_DATA_VERDICT)
	if f, err = parseFields("a verdict", inner.data, inner.at+attrHeader, unix.NFTA_VERDICT_CODE, unix.NFTA_VERDICT_CHAIN); err == nil {
		err = f.need("a verdict", unix.NFTA_VERDICT_CODE)
	}
	if err == nil {
		err = f.numbers(4, unix.NFTA_VERDICT_CODE)
	}
	if err != nil {
		return nil, err
	}
	v := &verdict{code: int32(f.uint32(unix.NFTA_VERDICT_CODE))}
	switch v.code {
	case verdictDrop, verdictAccept, unix.NFT_CONTINUE, unix.NFT_BREAK, unix.NFT_RETURN:
		if f.has(unix.NFTA_VERDICT_CHAIN) {
			return nil, unknownf("verdict %d with a chain", v.code)
		}
		return v, nil
	case unix.NFT_JUMP, unix.NFT_GOTO:
		if err := f.need("a jump", unix.NFTA_VERDICT_CHAIN); err != nil {
			return nil, err
		}
		if v.chain, err = t.chain(f.text(unix.NFTA_VERDICT_CHAIN)); err != nil {
			return nil, err
		}
		if v.chain.base != nil {
			return nil, refusef(unix.EOPNOTSUPP, "a jump to base chain %s", v.chain.name)
		}
		return v, nil
	default:
		return nil, refusef(unix.EINVAL, "verdict %d", v.code)
	}
}

// describe adds the verdict as data.
func (v *verdict) describe(b []byte, kind uint16) []byte {
	b, data := netlink.Nest(b, kind)
	b, mark := netlink.Nest(b, unix.NFTA_DATA_VERDICT)
	b = netlink.AppendUint32(b, unix.NFTA_VERDICT_CODE, uint32(v.code))
	if v.chain != nil {
		b = netlink.AppendText(b, unix.NFTA_VERDICT_CHAIN, v.chain.name)
	}
	return netlink.End(netlink.End(b, mark), data)
}

// expr is one expression of a rule.
type expr interface {
	// eval does its work on a packet. It returns false when the rule ends here
	// without a verdict.
	eval(w *walker, s *state, r *registers) bool
}

// referrer is an expression that refers to chains or sets.
type referrer interface {
	// uses are the counters of what it refers to.
	uses() []*int
}

// placed is an expression that not every chain may hold.
type placed interface {
	// allowed rejects to be reached from a base chain.
	allowed(from *base) error
}

// parsers make expressions out of their attributes.
var parsers map[string]func(p *exprParser, data field) (expr, error)

func init() {
	parsers = map[string]func(p *exprParser, data field) (expr, error){
		"payload":   parsePayload,
		"meta":      parseMeta,
		"ct":        parseConntrack,
		"fib":       parseFIB,
		"cmp":       parseCompare,
		"bitwise":   parseBitwise,
		"lookup":    parseLookup,
		"immediate": parseImmediate,
		"nat":       parseNAT,
		"masq":      parseMasquerade,
		"reject":    parseReject,
		"dynset":    parseDynset,
		"numgen":    parseNumgen,
		"hash":      parseHash,
		"counter":   parseCounter,
	}
}

// exprParser reads the expressions of one rule. The kernel rejects to read what no
// expression before has written, so it knows which registers hold something.
type exprParser struct {
	table   *table
	written [registerWords]bool
}

func (p *exprParser) exprs(list field) ([]expr, error) {
	items, err := parseList("expressions", list)
	if err != nil {
		return nil, err
	}
	var exprs []expr
	for _, item := range items {
		f, err := parseFields("an expression", item.data, item.at+attrHeader, unix.NFTA_EXPR_NAME, unix.NFTA_EXPR_DATA)
		if err == nil {
			err = f.need("an expression", unix.NFTA_EXPR_NAME)
		}
		if err != nil {
			return nil, err
		}
		parse := parsers[f.text(unix.NFTA_EXPR_NAME)]
		if parse == nil {
			return nil, unknownf("expression %q", f.text(unix.NFTA_EXPR_NAME))
		}
		e, err := parse(p, f.get(unix.NFTA_EXPR_DATA))
		if err != nil {
			return nil, err
		}
		exprs = append(exprs, e)
	}
	return exprs, nil
}

// attrs reads an expression's attributes: numbers of 4 bytes that it must have,
// numbers that it may have, and others.
func (p *exprParser) attrs(name string, data field, must, may, others []uint16) (fields, error) {
	var known []uint16
	for _, kinds := range [][]uint16{must, may, others} {
		known = append(known, kinds...)
	}
	f, err := parseFields(name, data.data, data.at+attrHeader, known...)
	if err == nil {
		err = f.need(name, must...)
	}
	if err == nil {
		err = f.numbers(4, append(must, may...)...)
	}
	return f, err
}

// family returns the sizes of the table's family.
func (p *exprParser) family() *header { return headers[p.table.family] }

// The registers are 16 words, which rules name as 4 registers of 4 words or one
// by one.
const (
	wordBytes     = 4
	registerWords = 16
)

// registers are what the expressions of one rule hand to each other.
type registers struct {
	data    [registerWords * wordBytes]byte
	verdict verdict
	// found is the last element that was looked up, and in its set.
	found *element
	in    *set
}

// store writes a value; the rest of its last word becomes zero.
func (r *registers) store(at int, value []byte) {
	clear(r.data[at : at+padded(len(value))])
	copy(r.data[at:], value)
}

func (r *registers) storeUint32(at int, n uint32) { binary.NativeEndian.PutUint32(r.data[at:], n) }

func (r *registers) load(at, size int) []byte { return r.data[at : at+size] }

// registerAt returns the offset of a register in the data.
func registerAt(number uint32) (int, error) {
	switch {
	case number >= unix.NFT_REG_1 && number <= unix.NFT_REG_4:
		return int(number-unix.NFT_REG_1) * 4 * wordBytes, nil
	case number >= unix.NFT_REG32_00 && number <= unix.NFT_REG32_15:
		return int(number-unix.NFT_REG32_00) * wordBytes, nil
	case number == unix.NFT_REG_VERDICT:
		return 0, refusef(unix.EINVAL, "a value in the register of verdicts")
	default:
		return 0, refusef(unix.ERANGE, "register %d", number)
	}
}

// source returns the offset of a value that an expression reads.
func (p *exprParser) source(number uint32, size int) (int, error) {
	at, err := inside(number, size)
	if err != nil {
		return 0, err
	}
	for word := at / wordBytes; word*wordBytes < at+size; word++ {
		if !p.written[word] {
			return 0, refusef(unix.ENODATA, "register %d is read before it is written", number)
		}
	}
	return at, nil
}

// target returns the offset of a value that an expression writes.
func (p *exprParser) target(number uint32, size int) (int, error) {
	at, err := inside(number, size)
	if err != nil {
		return 0, err
	}
	for word := at / wordBytes; word*wordBytes < at+size; word++ {
		p.written[word] = true
	}
	return at, nil
}

// inside rejects what does not fit into the registers.
func inside(number uint32, size int) (int, error) {
	at, err := registerAt(number)
	switch {
	case err != nil:
		return 0, err
	case size == 0:
		return 0, refusef(unix.EINVAL, "a value of no bytes")
	case at+size > registerWords*wordBytes:
		return 0, refusef(unix.ERANGE, "%d bytes in register %d", size, number)
	}
	return at, nil
}
