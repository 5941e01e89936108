package nft

import (
	"golang.org/x/sys/unix"
)

// expr is one expression of a rule.
type expr interface {
	// eval does its work on a packet. It gives false when the rule ends here
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
	// allowed refuses to be reached from a base chain.
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
		"counter":   parseCounter,
	}
}

// exprParser reads the expressions of one rule. The kernel refuses to read what no
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
		e, err := parse(p, f[unix.NFTA_EXPR_DATA])
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

// family gives the sizes of the table's family.
func (p *exprParser) family() *header { return headers[p.table.family] }
