// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/service"
)

// rule builds one rule. It uses the same registers as nft 1.0.6, so that loading nft's output gives the same rule.
type rule struct {
	rules.Rule
	d *dialect
	// word is the next free register, in units of 4 bytes.
	word int
}

func newRule(d *dialect) *rule {
	const usual = 8 // expressions
	return &rule{d: d, Rule: rules.Rule{Exprs: make([]rules.Expr, 0, usual)}}
}

// expr adds an expression.
func (r *rule) expr(e rules.Expr) *rule {
	r.Exprs = append(r.Exprs, e)
	return r
}

// next returns the next free register, for a value of some bytes.
func (r *rule) next(size int) uint32 {
	to := rules.Register(r.word)
	r.word += (size + registerBytes - 1) / registerBytes
	return to
}

// firstRegister is the register of the first loaded value.
var firstRegister = rules.Register(0)

// load puts a field into the next register.
func (r *rule) load(f field) *rule {
	d := r.d
	switch f {
	case fieldDaddr:
		r.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, d.Daddr, d.AddrBytes)
	case fieldSaddr:
		r.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, d.Saddr, d.AddrBytes)
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
	return r.expr(&rules.Load{To: r.next(size), Base: uint32(base), Offset: uint32(offset), Size: uint32(size)})
}

// meta loads a property of the packet.
func (r *rule) meta(key uint32) *rule {
	return r.expr(&rules.Meta{To: r.next(registerBytes), Key: key})
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
	return r.expr(&rules.Number{To: r.next(registerBytes), Modulus: uint32(modulus)})
}

// numbered loads a number below the modulus, as an algorithm chooses it.
func (r *rule) numbered(modulus int, by service.Balancing, seed uint32) *rule {
	to := r.next(registerBytes)
	if !by.Hashes() {
		return r.expr(&rules.Number{To: to, Modulus: uint32(modulus), InTurn: by == service.RoundRobin})
	}
	const apart = 4 // words that nft leaves between the key and the hashed fields
	key, first := r.word, r.word+apart
	r.word = first
	r.load(fieldSaddr)
	if by == service.ConnectionHash {
		r.payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2)
	}
	size := (r.word - first) * registerBytes
	r.word = key
	return r.expr(&rules.Hash{From: rules.Register(first), To: to, Size: uint32(size), Modulus: uint32(modulus), Seed: seed})
}

// in continues if the loaded value is in a set, or, negated, if it is not.
func (r *rule) in(set string, negated bool) *rule {
	return r.expr(&rules.Member{Set: set, From: firstRegister, Inverted: negated}).done()
}

// vmap applies the verdict of a map for the loaded value.
func (r *rule) vmap(name string) *rule {
	return r.expr(&rules.VerdictMap{Set: name, From: firstRegister}).done()
}

// mapped replaces the loaded value by the data of a map.
func (r *rule) mapped(name string) *rule {
	return r.expr(&rules.Map{Set: name, From: firstRegister, To: firstRegister})
}

// done frees the registers.
func (r *rule) done() *rule {
	r.word = 0
	return r
}

// cmp continues if the first register has the value, or, negated, another one.
func (r *rule) cmp(value []byte, negated bool) *rule {
	op := uint32(unix.NFT_CMP_EQ)
	if negated {
		op = unix.NFT_CMP_NEQ
	}
	return r.expr(&rules.Compare{From: firstRegister, Op: op, Value: string(value)}).done()
}

// bitwise replaces the first register by (register & mask) ^ flip.
func (r *rule) bitwise(mask, flip []byte) *rule {
	return r.expr(&rules.Bitwise{From: firstRegister, To: firstRegister, Mask: string(mask), Flip: string(flip)})
}

// within continues if an address of the packet is in a prefix, or, negated, if it is not.
// Whole bytes need no mask.
func (r *rule) within(f field, prefix netip.Prefix, negated bool) *rule {
	d := r.d
	offset := d.Daddr
	if f == fieldSaddr {
		offset = d.Saddr
	}
	addr := appendAddr(nil, prefix.Masked().Addr())
	if bits := prefix.Bits(); bits%8 == 0 && bits > 0 {
		return r.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, offset, bits/8).cmp(addr[:bits/8], negated)
	}
	mask := make([]byte, d.AddrBytes)
	for bit := range prefix.Bits() {
		mask[bit/8] |= 0x80 >> (bit % 8)
	}
	return r.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, offset, d.AddrBytes).
		bitwise(mask, make([]byte, d.AddrBytes)).cmp(addr, negated)
}

// from continues if the packet came in through an interface, or, negated, through another one.
// A trailing "+" makes the name a prefix.
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

// local continues if an address of the packet belongs to this node, or, negated, if it does not.
func (r *rule) local(f field, negated bool) *rule {
	which := uint32(unix.NFTA_FIB_F_DADDR)
	if f == fieldSaddr {
		which = unix.NFTA_FIB_F_SADDR
	}
	return r.expr(&rules.Fib{To: firstRegister, Result: unix.NFT_FIB_RESULT_ADDRTYPE, Flags: which}).
		cmp(hostUint32(unix.RTN_LOCAL), negated)
}

func hostUint32(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// translated continues if the destination of the connection was translated.
func (r *rule) translated() *rule { return r.status(rules.StatusDNAT) }

// confirmed continues if an earlier packet of the connection passed all rules. The kernel calls chains of
// type nat for such a connection only if there were none at that time, and does not translate it.
func (r *rule) confirmed() *rule { return r.status(rules.StatusConfirmed) }

// status continues if the connection has one of the bits.
func (r *rule) status(bits uint32) *rule {
	return r.expr(&rules.Conn{To: firstRegister, Key: unix.NFT_CT_STATUS}).has(bits)
}

// established continues if conntrack has seen packets of the connection in both directions.
func (r *rule) established() *rule {
	return r.expr(&rules.Conn{To: firstRegister, Key: unix.NFT_CT_STATE}).has(rules.StateEstablished)
}

// asked loads the original destination address of the connection. The packet's header may already
// have a translated one.
func (r *rule) asked() *rule {
	return r.expr(&rules.ConnOriginal{To: r.next(r.d.AddrBytes), Key: r.d.OriginalDaddr})
}

// marked continues if a bit of the packet's mark is set.
func (r *rule) marked(mark uint32) *rule { return r.meta(unix.NFT_META_MARK).has(mark) }

// has continues if one of the bits is set in the first register.
func (r *rule) has(bits uint32) *rule {
	return r.bitwise(hostUint32(bits), hostUint32(0)).cmp(hostUint32(0), true)
}

// mark sets a bit of the packet's mark. unmark flips it.
func (r *rule) mark(mark uint32) *rule   { return r.remark(^mark, mark) }
func (r *rule) unmark(mark uint32) *rule { return r.remark(^uint32(0), mark) }

func (r *rule) remark(mask, flip uint32) *rule {
	return r.meta(unix.NFT_META_MARK).bitwise(hostUint32(mask), hostUint32(flip)).
		expr(&rules.SetMeta{From: firstRegister, Key: unix.NFT_META_MARK}).done()
}

// verdict ends the rule.
func (r *rule) verdict(code uint32, chain string) *rule {
	return r.expr(&rules.Verdict{Code: code, Chain: chain})
}

func (r *rule) jump(chain string) *rule { return r.verdict(rules.Jump, chain) }
func (r *rule) goTo(chain string) *rule { return r.verdict(rules.Goto, chain) }
func (r *rule) drop() *rule             { return r.verdict(rules.Drop, "") }
func (r *rule) accept() *rule           { return r.verdict(rules.Accept, "") }
func (r *rule) leave() *rule            { return r.verdict(rules.Return, "") }

// reject answers with the family's "port unreachable".
func (r *rule) reject() *rule { return r.expr(&rules.Reject{Code: r.d.PortUnreachable}) }

// reset answers a TCP packet with a reset. Unlike for the ICMP messages of reject, the kernel has no rate limit
// for resets.
func (r *rule) reset() *rule { return r.expr(&rules.Reset{}) }

// masquerade gives the packet a source address of this node and a random port.
func (r *rule) masquerade() *rule {
	return r.expr(&rules.Masquerade{Flags: unix.NF_NAT_RANGE_PROTO_RANDOM_FULLY})
}

// dnatBy sends the packet to the endpoint in a map.
func (r *rule) dnatBy(name string) *rule {
	return r.mapped(name).expr(&rules.NAT{
		Type: unix.NFT_NAT_DNAT, Family: uint32(r.d.Protocol), Addr: firstRegister, Port: rules.Register(r.d.AddrBytes / registerBytes),
	}).done()
}

// offload moves the connection to a flowtable.
func (r *rule) offload(flowtable string) *rule { return r.expr(&rules.Offload{Flowtable: flowtable}) }

// readdress replaces the packet's destination address by the data of a map for the loaded value,
// and corrects the checksums that cover the address.
func (r *rule) readdress(name string) *rule {
	const checksumAt = 10 // of IPv4's header; that of IPv6 has none
	d := r.d
	write := rules.Write{
		From: firstRegister, Base: unix.NFT_PAYLOAD_NETWORK_HEADER, Offset: uint32(d.Daddr), Size: uint32(d.AddrBytes),
		ChecksumOptions: unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR,
	}
	if d.Family == service.IPv4 {
		write.Checksum, write.ChecksumAt = unix.NFT_PAYLOAD_CSUM_INET, checksumAt
	}
	return r.mapped(name).expr(&write).done()
}

// count counts the packets that reach this expression.
func (r *rule) count() *rule { return r.expr(&rules.Counter{}) }

// remember maps the packet's source to its destination for a time, which restarts with each
// packet. The data of an existing element does not change.
func (r *rule) remember(clients string, milliseconds uint64) *rule {
	return r.dynset(rules.Dynset{Set: clients, Op: unix.NFT_DYNSET_OP_UPDATE, Milliseconds: milliseconds})
}

// account adds the client and the frontend to a set for a time, which restarts with each packet. If the
// set is full, the rule ends here.
func (r *rule) account(memory string, milliseconds uint64) *rule {
	return r.fields([]field{fieldSaddr}).asked().load(fieldProtocol).load(fieldPort).
		expr(&rules.Dynset{Set: memory, Op: unix.NFT_DYNSET_OP_UPDATE, Key: firstRegister, Milliseconds: milliseconds}).done()
}

// forget removes the packet's source from a map.
func (r *rule) forget(clients string) *rule {
	return r.dynset(rules.Dynset{Set: clients, Op: rules.DynsetDelete})
}

// dynset changes a map from the packet's source to its destination. The data has a separate
// register of 16 bytes, as with nft.
func (r *rule) dynset(change rules.Dynset) *rule {
	const dataWord = 4
	r.fields([]field{fieldSaddr})
	r.word = dataWord
	change.Key, change.Data = firstRegister, rules.Register(dataWord)
	return r.load(fieldDaddr).expr(&change).done()
}

// says sets the comment.
func (r *rule) says(comment string) *rule {
	r.Comment = comment
	return r
}
