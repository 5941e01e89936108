// SPDX-License-Identifier: Apache-2.0

package rules

import "golang.org/x/sys/unix"

// Expr is an expression of a rule. This file has all its types.
type Expr interface {
	// name is the kernel's name of the expression.
	name() string
	// attrs visits the attributes in ascending order.
	attrs(c *codec)
}

// Fields named To and From are registers: 1 to 4 are whole registers of 16 bytes, and NFT_REG32_00 and further are
// words of 4 bytes; see [Register].
type (
	// Load loads bytes of a header.
	Load struct{ To, Base, Offset, Size uint32 }
	// Write writes bytes of a header, and corrects checksums.
	Write struct {
		From, Base, Offset, Size              uint32
		Checksum, ChecksumAt, ChecksumOptions uint32
	}
	// Meta loads a property of the packet.
	Meta struct{ To, Key uint32 }
	// SetMeta sets a property of the packet.
	SetMeta struct{ From, Key uint32 }
	// Conn loads a property of the connection.
	Conn struct{ To, Key uint32 }
	// ConnOriginal loads a property of the connection in the direction of its first packet.
	ConnOriginal struct{ To, Key uint32 }
	// Fib loads the result of a routing lookup.
	Fib struct{ To, Result, Flags uint32 }
	// Number loads a number below the modulus: a random one, or the next one for each packet.
	Number struct {
		To, Modulus uint32
		InTurn      bool
	}
	// Hash loads a number below the modulus: the Jenkins hash of Size bytes, scaled.
	Hash struct{ From, To, Size, Modulus, Seed uint32 }
	// Bitwise computes (From & Mask) ^ Flip.
	Bitwise struct {
		From, To   uint32
		Mask, Flip string
	}
	// Compare matches if the comparison Op of a register with a value is true.
	Compare struct {
		From, Op uint32
		Value    string
	}
	// Member matches if a key is in a set, or, inverted, if it is not.
	Member struct {
		Set      string
		From     uint32
		Inverted bool
	}
	// VerdictMap applies the verdict of a map. It matches if the key is in the map.
	VerdictMap struct {
		Set  string
		From uint32
	}
	// Map loads the data of a map. It matches if the key is in the map.
	Map struct {
		Set      string
		From, To uint32
	}
	// Dynset adds, updates or removes an element of a set, or of a map if it has data.
	Dynset struct {
		Set     string
		Op, Key uint32
		// Data is the register of the data; 0 for none.
		Data uint32
		// Milliseconds is the timeout of the element; 0 for none.
		Milliseconds uint64
	}
	// Verdict ends the rule with a verdict.
	Verdict struct {
		Code  uint32
		Chain string
	}
	// NAT translates an address, and a port if Port is not 0. Both are registers.
	NAT struct{ Type, Family, Addr, Port uint32 }
	// Masquerade gives the packet a source address of this node.
	Masquerade struct{ Flags uint32 }
	// Reject answers with an ICMP code for an unreachable destination.
	Reject struct{ Code byte }
	// Reset answers with a TCP reset.
	Reset struct{}
	// Offload adds the connection to a flowtable.
	Offload struct{ Flowtable string }
	// Counter counts the packets that reach it. Its counts are not part of the rule.
	Counter struct{}
	// Unknown is an expression that no other type describes, with its attributes as they were found.
	Unknown struct{ Name, Attrs string }
)

// candidates returns an empty expression of each type with a name.
func candidates(name string) []Expr {
	switch name {
	case "payload":
		return []Expr{&Load{}, &Write{}}
	case "meta":
		return []Expr{&Meta{}, &SetMeta{}}
	case "ct":
		return []Expr{&Conn{}, &ConnOriginal{}}
	case "fib":
		return []Expr{&Fib{}}
	case "numgen":
		return []Expr{&Number{}}
	case "hash":
		return []Expr{&Hash{}}
	case "bitwise":
		return []Expr{&Bitwise{}}
	case "cmp":
		return []Expr{&Compare{}}
	case "lookup":
		return []Expr{&Member{}, &VerdictMap{}, &Map{}}
	case "dynset":
		return []Expr{&Dynset{}}
	case "immediate":
		return []Expr{&Verdict{}}
	case "nat":
		return []Expr{&NAT{}}
	case "masq":
		return []Expr{&Masquerade{}}
	case "reject":
		return []Expr{&Reject{}, &Reset{}}
	case "flow_offload":
		return []Expr{&Offload{}}
	case "counter":
		return []Expr{&Counter{}}
	}
	return nil
}

func (*Load) name() string         { return "payload" }
func (*Write) name() string        { return "payload" }
func (*Meta) name() string         { return "meta" }
func (*SetMeta) name() string      { return "meta" }
func (*Conn) name() string         { return "ct" }
func (*ConnOriginal) name() string { return "ct" }
func (*Fib) name() string          { return "fib" }
func (*Number) name() string       { return "numgen" }
func (*Hash) name() string         { return "hash" }
func (*Bitwise) name() string      { return "bitwise" }
func (*Compare) name() string      { return "cmp" }
func (*Member) name() string       { return "lookup" }
func (*VerdictMap) name() string   { return "lookup" }
func (*Map) name() string          { return "lookup" }
func (*Dynset) name() string       { return "dynset" }
func (*Verdict) name() string      { return "immediate" }
func (*NAT) name() string          { return "nat" }
func (*Masquerade) name() string   { return "masq" }
func (*Reject) name() string       { return "reject" }
func (*Reset) name() string        { return "reject" }
func (*Offload) name() string      { return "flow_offload" }
func (*Counter) name() string      { return "counter" }
func (e *Unknown) name() string    { return e.Name }

// Attributes that package unix does not name.
const (
	bitwiseOp   = 6 // NFTA_BITWISE_OP, Linux 5.6
	dynsetFlags = 9 // NFTA_DYNSET_FLAGS
	flowTable   = 1 // NFTA_FLOW_TABLE_NAME
)

func (e *Load) attrs(c *codec) {
	c.uint32(unix.NFTA_PAYLOAD_DREG, &e.To)
	c.uint32(unix.NFTA_PAYLOAD_BASE, &e.Base)
	c.uint32(unix.NFTA_PAYLOAD_OFFSET, &e.Offset)
	c.uint32(unix.NFTA_PAYLOAD_LEN, &e.Size)
}

func (e *Write) attrs(c *codec) {
	c.uint32(unix.NFTA_PAYLOAD_BASE, &e.Base)
	c.uint32(unix.NFTA_PAYLOAD_OFFSET, &e.Offset)
	c.uint32(unix.NFTA_PAYLOAD_LEN, &e.Size)
	c.uint32(unix.NFTA_PAYLOAD_SREG, &e.From)
	c.optional(unix.NFTA_PAYLOAD_CSUM_TYPE, &e.Checksum)
	c.optional(unix.NFTA_PAYLOAD_CSUM_OFFSET, &e.ChecksumAt)
	c.uint32(unix.NFTA_PAYLOAD_CSUM_FLAGS, &e.ChecksumOptions)
}

func (e *Meta) attrs(c *codec) {
	c.uint32(unix.NFTA_META_DREG, &e.To)
	c.uint32(unix.NFTA_META_KEY, &e.Key)
}

func (e *SetMeta) attrs(c *codec) {
	c.uint32(unix.NFTA_META_KEY, &e.Key)
	c.uint32(unix.NFTA_META_SREG, &e.From)
}

func (e *Conn) attrs(c *codec) {
	c.uint32(unix.NFTA_CT_DREG, &e.To)
	c.uint32(unix.NFTA_CT_KEY, &e.Key)
}

func (e *ConnOriginal) attrs(c *codec) {
	c.uint32(unix.NFTA_CT_DREG, &e.To)
	c.uint32(unix.NFTA_CT_KEY, &e.Key)
	original := byte(0) // IP_CT_DIR_ORIGINAL
	c.byte(unix.NFTA_CT_DIRECTION, &original)
	c.failed = c.failed || original != 0
}

func (e *Fib) attrs(c *codec) {
	c.uint32(unix.NFTA_FIB_DREG, &e.To)
	c.uint32(unix.NFTA_FIB_RESULT, &e.Result)
	c.uint32(unix.NFTA_FIB_FLAGS, &e.Flags)
}

func (e *Number) attrs(c *codec) {
	c.uint32(unix.NFTA_NG_DREG, &e.To)
	c.uint32(unix.NFTA_NG_MODULUS, &e.Modulus)
	kind := uint32(unix.NFT_NG_RANDOM)
	if e.InTurn {
		kind = unix.NFT_NG_INCREMENTAL
	}
	c.uint32(unix.NFTA_NG_TYPE, &kind)
	e.InTurn = kind == unix.NFT_NG_INCREMENTAL
	c.failed = c.failed || kind > unix.NFT_NG_RANDOM
	c.implied(unix.NFTA_NG_OFFSET, zero)
}

func (e *Hash) attrs(c *codec) {
	c.uint32(unix.NFTA_HASH_SREG, &e.From)
	c.uint32(unix.NFTA_HASH_DREG, &e.To)
	c.uint32(unix.NFTA_HASH_LEN, &e.Size)
	c.uint32(unix.NFTA_HASH_MODULUS, &e.Modulus)
	c.uint32(unix.NFTA_HASH_SEED, &e.Seed)
	c.implied(unix.NFTA_HASH_OFFSET, zero)
	c.implied(unix.NFTA_HASH_TYPE, zero) // NFT_HASH_JENKINS
}

func (e *Bitwise) attrs(c *codec) {
	c.uint32(unix.NFTA_BITWISE_SREG, &e.From)
	c.uint32(unix.NFTA_BITWISE_DREG, &e.To)
	size := uint32(len(e.Mask))
	c.uint32(unix.NFTA_BITWISE_LEN, &size)
	c.value(unix.NFTA_BITWISE_MASK, &e.Mask)
	c.value(unix.NFTA_BITWISE_XOR, &e.Flip)
	c.implied(bitwiseOp, zero)
	c.failed = c.failed || int(size) != len(e.Mask) || len(e.Mask) != len(e.Flip)
}

func (e *Compare) attrs(c *codec) {
	c.uint32(unix.NFTA_CMP_SREG, &e.From)
	c.uint32(unix.NFTA_CMP_OP, &e.Op)
	c.value(unix.NFTA_CMP_DATA, &e.Value)
}

func (e *Member) attrs(c *codec) {
	c.text(unix.NFTA_LOOKUP_SET, &e.Set)
	c.uint32(unix.NFTA_LOOKUP_SREG, &e.From)
	flags := uint32(0)
	if e.Inverted {
		flags = unix.NFT_LOOKUP_F_INV
	}
	c.optional(unix.NFTA_LOOKUP_FLAGS, &flags)
	e.Inverted = flags == unix.NFT_LOOKUP_F_INV
	c.failed = c.failed || flags&^unix.NFT_LOOKUP_F_INV != 0
}

func (e *VerdictMap) attrs(c *codec) {
	c.text(unix.NFTA_LOOKUP_SET, &e.Set)
	c.uint32(unix.NFTA_LOOKUP_SREG, &e.From)
	c.constant(unix.NFTA_LOOKUP_DREG, unix.NFT_REG_VERDICT)
	c.implied(unix.NFTA_LOOKUP_FLAGS, zero)
}

func (e *Map) attrs(c *codec) {
	c.text(unix.NFTA_LOOKUP_SET, &e.Set)
	c.uint32(unix.NFTA_LOOKUP_SREG, &e.From)
	c.uint32(unix.NFTA_LOOKUP_DREG, &e.To)
	c.implied(unix.NFTA_LOOKUP_FLAGS, zero)
}

func (e *Dynset) attrs(c *codec) {
	c.text(unix.NFTA_DYNSET_SET_NAME, &e.Set)
	c.uint32(unix.NFTA_DYNSET_OP, &e.Op)
	c.uint32(unix.NFTA_DYNSET_SREG_KEY, &e.Key)
	c.optional(unix.NFTA_DYNSET_SREG_DATA, &e.Data)
	c.optional64(unix.NFTA_DYNSET_TIMEOUT, &e.Milliseconds)
	c.implied(dynsetFlags, zero)
}

func (e *Verdict) attrs(c *codec) {
	c.constant(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
	c.verdict(unix.NFTA_IMMEDIATE_DATA, e)
}

// natImplied are the flags that the kernel adds to a translation with an address and a port.
const natImplied = unix.NF_NAT_RANGE_MAP_IPS | unix.NF_NAT_RANGE_PROTO_SPECIFIED

func (e *NAT) attrs(c *codec) {
	c.uint32(unix.NFTA_NAT_TYPE, &e.Type)
	c.uint32(unix.NFTA_NAT_FAMILY, &e.Family)
	c.uint32(unix.NFTA_NAT_REG_ADDR_MIN, &e.Addr)
	c.implied(unix.NFTA_NAT_REG_ADDR_MAX, func(n uint32) bool { return n == e.Addr })
	c.optional(unix.NFTA_NAT_REG_PROTO_MIN, &e.Port)
	c.implied(unix.NFTA_NAT_REG_PROTO_MAX, func(n uint32) bool { return n == e.Port })
	c.implied(unix.NFTA_NAT_FLAGS, func(n uint32) bool { return n&^natImplied == 0 })
}

func (e *Masquerade) attrs(c *codec) { c.uint32(unix.NFTA_MASQ_FLAGS, &e.Flags) }

func (e *Reject) attrs(c *codec) {
	c.constant(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_ICMP_UNREACH)
	c.byte(unix.NFTA_REJECT_ICMP_CODE, &e.Code)
}

func (*Reset) attrs(c *codec) { c.constant(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_TCP_RST) }

func (e *Offload) attrs(c *codec) { c.text(flowTable, &e.Flowtable) }

func (*Counter) attrs(c *codec) {
	for _, kind := range []uint16{unix.NFTA_COUNTER_BYTES, unix.NFTA_COUNTER_PACKETS, unix.NFTA_COUNTER_PAD} {
		c.take(kind)
	}
}

func (e *Unknown) attrs(c *codec) { c.b = append(c.b, e.Attrs...) }
