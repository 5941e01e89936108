package nftables

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// rule builds one rule from the kernel's expressions. The result is in normal form (see
// normalExpr): attributes ascend, and defaults are omitted, so that the kernel returns a rule
// as the same bytes. It uses registers as nft 1.0.6 does, so that nft's output of a rule is
// the same rule.
type rule struct {
	d *dialect
	// exprs are elements of NFTA_RULE_EXPRESSIONS.
	exprs []byte
	// word is the next free register, in units of 4 bytes.
	word    int
	comment string
}

func newRule(d *dialect) *rule { return &rule{d: d} }

// register returns the number of a word as the kernel reports it: whole registers of 16
// bytes are 1 to 4, and the words between them have other numbers.
func register(word int) uint32 {
	if word%4 == 0 {
		return uint32(unix.NFT_REG_1 + word/4)
	}
	return uint32(unix.NFT_REG32_00 + word)
}

// expr adds an expression whose attributes fill adds.
func (r *rule) expr(name string, fill func(b []byte) []byte) *rule {
	b, element := netlink.Nest(r.exprs, unix.NFTA_LIST_ELEM)
	b = netlink.AppendText(b, unix.NFTA_EXPR_NAME, name)
	b, data := netlink.Nest(b, unix.NFTA_EXPR_DATA)
	b = netlink.End(fill(b), data)
	r.exprs = netlink.End(b, element)
	return r
}

// numbers adds an expression whose attributes are numbers: pairs of kind and value.
func (r *rule) numbers(name string, pairs ...uint32) *rule {
	return r.expr(name, func(b []byte) []byte { return appendNumbers(b, pairs...) })
}

func appendNumbers(b []byte, pairs ...uint32) []byte {
	for i := 0; i < len(pairs); i += 2 {
		b = netlink.AppendUint32(b, uint16(pairs[i]), pairs[i+1])
	}
	return b
}

// load puts a field into the next register.
func (r *rule) load(f field) *rule {
	d := r.d
	switch f {
	case fieldDaddr:
		r.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, d.daddr, d.addrBytes)
	case fieldSaddr:
		r.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, d.saddr, d.addrBytes)
	case fieldProtocol:
		r.meta(unix.NFT_META_L4PROTO)
	default:
		const destinationPort = 2
		r.payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, destinationPort, 2)
	}
	return r
}

// payload loads size bytes at an offset of a header.
func (r *rule) payload(base, offset, size int) *rule {
	to := register(r.word)
	r.word += (size + registerBytes - 1) / registerBytes
	return r.numbers("payload", unix.NFTA_PAYLOAD_DREG, to, unix.NFTA_PAYLOAD_BASE, uint32(base),
		unix.NFTA_PAYLOAD_OFFSET, uint32(offset), unix.NFTA_PAYLOAD_LEN, uint32(size))
}

// meta loads a property of the packet.
func (r *rule) meta(key uint32) *rule {
	to := register(r.word)
	r.word++
	return r.numbers("meta", unix.NFTA_META_DREG, to, unix.NFTA_META_KEY, key)
}

// fields loads a concatenation from the first register on.
func (r *rule) fields(fields []field) *rule {
	r.word = 0
	for _, f := range fields {
		if f == fieldSlot {
			panic("nftables: a slot is loaded with a modulus, by numgen")
		}
		r.load(f)
	}
	return r
}

// numgen loads a random number below the modulus.
func (r *rule) numgen(modulus int) *rule {
	to := register(r.word)
	r.word++
	return r.numbers("numgen", unix.NFTA_NG_DREG, to, unix.NFTA_NG_MODULUS, uint32(modulus),
		unix.NFTA_NG_TYPE, unix.NFT_NG_RANDOM)
}

// in goes on if the loaded value is in a set, or, negated, if it is not.
func (r *rule) in(set string, negated bool) *rule {
	return r.expr("lookup", func(b []byte) []byte {
		b = netlink.AppendText(b, unix.NFTA_LOOKUP_SET, set)
		b = netlink.AppendUint32(b, unix.NFTA_LOOKUP_SREG, register(0))
		if negated {
			b = netlink.AppendUint32(b, unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV)
		}
		return b
	}).done()
}

// vmap applies the verdict of a map for the loaded value.
func (r *rule) vmap(name string) *rule {
	return r.mapped(name, unix.NFT_REG_VERDICT).done()
}

// mapped puts the data of a map for the loaded value into a register.
func (r *rule) mapped(name string, to uint32) *rule {
	return r.expr("lookup", func(b []byte) []byte {
		b = netlink.AppendText(b, unix.NFTA_LOOKUP_SET, name)
		return appendNumbers(b, unix.NFTA_LOOKUP_SREG, register(0), unix.NFTA_LOOKUP_DREG, to)
	})
}

// done frees the registers.
func (r *rule) done() *rule {
	r.word = 0
	return r
}

// cmp goes on if the first register has the value, or, negated, another one.
func (r *rule) cmp(value []byte, negated bool) *rule {
	op := uint32(unix.NFT_CMP_EQ)
	if negated {
		op = unix.NFT_CMP_NEQ
	}
	return r.expr("cmp", func(b []byte) []byte {
		b = appendNumbers(b, unix.NFTA_CMP_SREG, register(0), unix.NFTA_CMP_OP, op)
		return appendValue(b, unix.NFTA_CMP_DATA, value)
	}).done()
}

func appendValue(b []byte, kind uint16, value []byte) []byte {
	b, mark := netlink.Nest(b, kind)
	return netlink.End(netlink.AppendBytes(b, unix.NFTA_DATA_VALUE, value), mark)
}

// bitwise replaces the first register by (register & mask) ^ flip.
func (r *rule) bitwise(mask, flip []byte) *rule {
	return r.expr("bitwise", func(b []byte) []byte {
		b = appendNumbers(b, unix.NFTA_BITWISE_SREG, register(0), unix.NFTA_BITWISE_DREG, register(0),
			unix.NFTA_BITWISE_LEN, uint32(len(mask)))
		b = appendValue(b, unix.NFTA_BITWISE_MASK, mask)
		return appendValue(b, unix.NFTA_BITWISE_XOR, flip)
	})
}

// within goes on if an address of the packet is in a prefix, or, negated, if it is not.
// Whole bytes need no mask.
func (r *rule) within(f field, prefix netip.Prefix, negated bool) *rule {
	d := r.d
	offset := d.daddr
	if f == fieldSaddr {
		offset = d.saddr
	}
	addr := appendAddr(nil, prefix.Masked().Addr())
	if bits := prefix.Bits(); bits%8 == 0 && bits > 0 {
		return r.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, offset, bits/8).cmp(addr[:bits/8], negated)
	}
	mask := make([]byte, d.addrBytes)
	for bit := range prefix.Bits() {
		mask[bit/8] |= 0x80 >> (bit % 8)
	}
	return r.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, offset, d.addrBytes).
		bitwise(mask, make([]byte, d.addrBytes)).cmp(addr, negated)
}

// from goes on if the packet came in through an interface, or, negated, through another one.
// A trailing "+" matches any name that begins so.
func (r *rule) from(name string, negated bool) *rule {
	if prefix, any := cutPlus(name); any {
		return r.meta(unix.NFT_META_IIFNAME).cmp([]byte(prefix), negated)
	}
	var padded [unix.IFNAMSIZ]byte
	copy(padded[:], name)
	return r.meta(unix.NFT_META_IIFNAME).cmp(padded[:], negated)
}

func cutPlus(name string) (prefix string, any bool) {
	if last := len(name) - 1; last >= 0 && name[last] == '+' {
		return name[:last], true
	}
	return name, false
}

// local goes on if an address of the packet belongs to this node, or, negated, if it does not.
func (r *rule) local(f field, negated bool) *rule {
	which := uint32(unix.NFTA_FIB_F_DADDR)
	if f == fieldSaddr {
		which = unix.NFTA_FIB_F_SADDR
	}
	return r.numbers("fib", unix.NFTA_FIB_DREG, register(0), unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_ADDRTYPE,
		unix.NFTA_FIB_FLAGS, which).cmp(hostUint32(unix.RTN_LOCAL), negated)
}

func hostUint32(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// IPS_CONFIRMED and IPS_DST_NAT (linux/netfilter/nf_conntrack_common.h).
const (
	statusConfirmed = 1 << 3
	statusDNAT      = 1 << 5
)

// translated goes on if the connection has another destination than its sender asked for.
func (r *rule) translated() *rule { return r.status(statusDNAT) }

// confirmed goes on if an earlier packet of the connection has passed all rules. The kernel asks
// chains of type nat about such a connection only if there were none then, and does not translate it.
func (r *rule) confirmed() *rule { return r.status(statusConfirmed) }

// status goes on if the connection has one of the bits.
func (r *rule) status(bits uint32) *rule {
	return r.numbers("ct", unix.NFTA_CT_DREG, register(0), unix.NFTA_CT_KEY, unix.NFT_CT_STATUS).has(bits)
}

// asked loads the address that the sender of the connection asked for. The header may already have
// another one.
func (r *rule) asked() *rule {
	to := register(r.word)
	r.word += r.d.addrBytes / registerBytes
	return r.expr("ct", func(b []byte) []byte {
		b = appendNumbers(b, unix.NFTA_CT_DREG, to, unix.NFTA_CT_KEY, r.d.originalDaddr)
		return netlink.AppendBytes(b, unix.NFTA_CT_DIRECTION, []byte{0}) // IP_CT_DIR_ORIGINAL
	})
}

// marked goes on if a bit of the packet's mark is set.
func (r *rule) marked(mark uint32) *rule { return r.meta(unix.NFT_META_MARK).has(mark) }

// has goes on if one of the bits is set in the first register.
func (r *rule) has(bits uint32) *rule {
	return r.bitwise(hostUint32(bits), hostUint32(0)).cmp(hostUint32(0), true)
}

// mark sets a bit of the packet's mark. unmark flips it.
func (r *rule) mark(mark uint32) *rule   { return r.remark(^mark, mark) }
func (r *rule) unmark(mark uint32) *rule { return r.remark(^uint32(0), mark) }

func (r *rule) remark(mask, flip uint32) *rule {
	return r.meta(unix.NFT_META_MARK).bitwise(hostUint32(mask), hostUint32(flip)).
		numbers("meta", unix.NFTA_META_KEY, unix.NFT_META_MARK, unix.NFTA_META_SREG, register(0)).done()
}

// verdict ends the rule with a jump, a goto, a drop or a return.
func (r *rule) verdict(code uint32, chain string) *rule {
	return r.expr("immediate", func(b []byte) []byte {
		b = netlink.AppendUint32(b, unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
		b, mark := netlink.Nest(b, unix.NFTA_IMMEDIATE_DATA)
		return netlink.End(appendVerdict(b, code, chain), mark)
	})
}

func (r *rule) jump(chain string) *rule { return r.verdict(verdictJump, chain) }
func (r *rule) goTo(chain string) *rule { return r.verdict(verdictGoto, chain) }
func (r *rule) drop() *rule             { return r.verdict(verdictDrop, "") }
func (r *rule) accept() *rule           { return r.verdict(verdictAccept, "") }
func (r *rule) leave() *rule            { return r.verdict(verdictReturn, "") }

// reject answers with the family's "port unreachable".
func (r *rule) reject() *rule {
	return r.expr("reject", func(b []byte) []byte {
		b = netlink.AppendUint32(b, unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_ICMP_UNREACH)
		return netlink.AppendBytes(b, unix.NFTA_REJECT_ICMP_CODE, []byte{r.d.rejectCode})
	})
}

// reset answers a TCP packet with a reset, which the kernel does as often as it is asked to. It limits how many ICMP
// messages a peer gets.
func (r *rule) reset() *rule {
	return r.numbers("reject", unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_TCP_RST)
}

// masquerade gives the packet a source address of this node and a random port.
func (r *rule) masquerade() *rule {
	return r.numbers("masq", unix.NFTA_MASQ_FLAGS, unix.NF_NAT_RANGE_PROTO_RANDOM_FULLY)
}

// dnatBy sends the packet to the endpoint in a map.
func (r *rule) dnatBy(name string) *rule {
	r.mapped(name, register(0))
	return r.dnat(r.d.addrBytes / registerBytes)
}

// dnat sends the packet to the address in the first register and the port in another one.
func (r *rule) dnat(portWord int) *rule {
	return r.numbers("nat", unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT, unix.NFTA_NAT_FAMILY, uint32(r.d.protocol),
		unix.NFTA_NAT_REG_ADDR_MIN, register(0), unix.NFTA_NAT_REG_PROTO_MIN, register(portWord)).done()
}

// readdress replaces the packet's destination address by the data of a map for the loaded
// value. It corrects the checksums that cover the address.
func (r *rule) readdress(name string) *rule {
	const checksumOffset = 10 // of IPv4's header; that of IPv6 has none
	d := r.d
	r.mapped(name, register(0))
	return r.expr("payload", func(b []byte) []byte {
		b = appendNumbers(b, unix.NFTA_PAYLOAD_BASE, unix.NFT_PAYLOAD_NETWORK_HEADER,
			unix.NFTA_PAYLOAD_OFFSET, uint32(d.daddr), unix.NFTA_PAYLOAD_LEN, uint32(d.addrBytes),
			unix.NFTA_PAYLOAD_SREG, register(0))
		if d.family == service.IPv4 {
			b = appendNumbers(b, unix.NFTA_PAYLOAD_CSUM_TYPE, unix.NFT_PAYLOAD_CSUM_INET,
				unix.NFTA_PAYLOAD_CSUM_OFFSET, checksumOffset)
		}
		return netlink.AppendUint32(b, unix.NFTA_PAYLOAD_CSUM_FLAGS, unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR)
	}).done()
}

// remember maps the packet's source to its destination for a time, which starts anew with
// each packet. The data of an element that exists stays.
func (r *rule) remember(clients string, milliseconds uint64) *rule {
	return r.dynset(unix.NFT_DYNSET_OP_UPDATE, clients, milliseconds)
}

// account notes the client and the frontend in a set for a time, which starts again with each packet. If
// the set is full, the rule ends here.
func (r *rule) account(memory string, milliseconds uint64) *rule {
	return r.fields([]field{fieldSaddr}).asked().load(fieldProtocol).load(fieldPort).
		expr("dynset", func(b []byte) []byte {
			b = netlink.AppendText(b, unix.NFTA_DYNSET_SET_NAME, memory)
			b = appendNumbers(b, unix.NFTA_DYNSET_OP, unix.NFT_DYNSET_OP_UPDATE, unix.NFTA_DYNSET_SREG_KEY, register(0))
			return netlink.AppendUint64(b, unix.NFTA_DYNSET_TIMEOUT, milliseconds)
		}).done()
}

// forget removes the packet's source from a map.
func (r *rule) forget(clients string) *rule {
	const dynsetDelete = 2 // NFT_DYNSET_OP_DELETE, Linux 5.4
	return r.dynset(dynsetDelete, clients, 0)
}

// dynset changes a map of the packet's source to its destination. The data has a whole
// register, as with nft.
func (r *rule) dynset(operation uint32, name string, milliseconds uint64) *rule {
	const dataWord = 4
	r.fields([]field{fieldSaddr})
	r.word = dataWord
	return r.load(fieldDaddr).expr("dynset", func(b []byte) []byte {
		b = netlink.AppendText(b, unix.NFTA_DYNSET_SET_NAME, name)
		b = appendNumbers(b, unix.NFTA_DYNSET_OP, operation, unix.NFTA_DYNSET_SREG_KEY, register(0),
			unix.NFTA_DYNSET_SREG_DATA, register(dataWord))
		if milliseconds > 0 {
			b = netlink.AppendUint64(b, unix.NFTA_DYNSET_TIMEOUT, milliseconds)
		}
		return b
	}).done()
}

// says sets the comment.
func (r *rule) says(comment string) *rule {
	r.comment = comment
	return r
}

// body adds the attributes of the rule.
func (r *rule) body(b []byte) []byte {
	b = netlink.AppendBytes(b, unix.NFTA_RULE_EXPRESSIONS, r.exprs)
	if r.comment != "" {
		b = appendComment(b, unix.NFTA_RULE_USERDATA, r.comment)
	}
	return b
}
