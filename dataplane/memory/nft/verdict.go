package nft

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

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
	if len(f) != 1 || !f.has(unix.NFTA_DATA_VERDICT) {
		return nil, refusef(unix.EINVAL, "a value or nothing where a verdict should be")
	}
	inner := f[unix.NFTA_DATA_VERDICT]
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
	b, data := wire.Nest(b, kind)
	b, mark := wire.Nest(b, unix.NFTA_DATA_VERDICT)
	b = wire.AppendUint32(b, unix.NFTA_VERDICT_CODE, uint32(v.code))
	if v.chain != nil {
		b = wire.AppendText(b, unix.NFTA_VERDICT_CHAIN, v.chain.name)
	}
	return wire.End(wire.End(b, mark), data)
}
