package nft

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// immediate loads a value.
type immediate struct {
	to    int
	value []byte
}

// immediateVerdict ends the rule.
type immediateVerdict struct{ verdict }

func parseImmediate(p *exprParser, data field) (expr, error) {
	f, err := p.attrs("immediate", data, []uint16{unix.NFTA_IMMEDIATE_DREG}, nil, []uint16{unix.NFTA_IMMEDIATE_DATA})
	if err == nil {
		err = f.need("immediate", unix.NFTA_IMMEDIATE_DATA)
	}
	if err != nil {
		return nil, err
	}
	number := f.uint32(unix.NFTA_IMMEDIATE_DREG)
	if number == unix.NFT_REG_VERDICT {
		v, err := parseVerdict(p.table, f[unix.NFTA_IMMEDIATE_DATA])
		if err != nil {
			return nil, err
		}
		return &immediateVerdict{*v}, nil
	}
	value, err := parseValue(f[unix.NFTA_IMMEDIATE_DATA])
	if err != nil {
		return nil, err
	}
	to, err := p.target(number, len(value))
	return &immediate{to, bytes.Clone(value)}, err
}

func (e *immediate) eval(_ *walker, _ *state, r *registers) bool {
	r.store(e.to, e.value)
	return true
}

func (e *immediateVerdict) uses() []*int {
	if e.chain == nil {
		return nil
	}
	return []*int{&e.chain.use}
}

func (e *immediateVerdict) eval(_ *walker, _ *state, r *registers) bool {
	r.verdict = e.verdict
	return true
}
