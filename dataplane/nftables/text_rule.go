package nftables

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// ruleText prints a rule in nft's syntax. It knows the expressions that type rule makes.
func ruleText(d *dialect, attrs []byte) (string, error) {
	p := &rulePrinter{d: d}
	for element := range netlink.Attrs(netlink.Find(attrs, unix.NFTA_RULE_EXPRESSIONS).Data) {
		name := netlink.Find(element.Data, unix.NFTA_EXPR_NAME).Text()
		if err := p.expr(name, netlink.Find(element.Data, unix.NFTA_EXPR_DATA).Data); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
	}
	if comment := commentIn(netlink.Find(attrs, unix.NFTA_RULE_USERDATA).Data); comment != "" {
		p.say("comment %q", comment)
	}
	return strings.Join(p.words, " "), nil
}

// rulePrinter tracks what expressions leave in registers.
type rulePrinter struct {
	d     *dialect
	words []string
	// loaded is what is in registers and not yet used.
	loaded []operand
	// mapped is the map whose data is in a register, or "".
	mapped string
}

// operand is something in a register.
type operand struct {
	text string
	kind operandKind
	// size is the number of bytes loaded. mask and flip are what was applied to them.
	size       int
	mask, flip []byte
}

type operandKind uint8

const (
	operandAddr operandKind = iota
	operandProtocol
	operandPort
	operandInterface
	operandMark
	operandLocal
	operandStatus
	operandRandom
)

func (p *rulePrinter) say(format string, args ...any) {
	p.words = append(p.words, fmt.Sprintf(format, args...))
}

// take returns all operands as a concatenation and frees the registers.
func (p *rulePrinter) take() string {
	var texts []string
	for _, o := range p.loaded {
		texts = append(texts, o.text)
	}
	p.loaded = nil
	return strings.Join(texts, " . ")
}

func (p *rulePrinter) push(o operand) error {
	p.loaded = append(p.loaded, o)
	return nil
}

// expr prints one expression, or stores what it loads.
func (p *rulePrinter) expr(name string, b []byte) error {
	switch name {
	case "payload":
		return p.payload(b)
	case "meta":
		return p.meta(b)
	case "ct":
		return p.ct(b)
	case "fib":
		return p.fib(b)
	case "numgen":
		text := fmt.Sprintf("numgen random mod %d", netlink.Find(b, unix.NFTA_NG_MODULUS).Uint32())
		return p.push(operand{text: text, kind: operandRandom})
	case "bitwise":
		return p.bitwise(b)
	case "cmp":
		return p.cmp(b)
	case "lookup":
		return p.lookup(b)
	case "immediate":
		return p.immediate(b)
	case "nat":
		return p.nat()
	case "masq":
		p.say("masquerade fully-random")
	case "reject":
		p.say("reject")
	case "dynset":
		return p.dynset(b)
	default:
		return fmt.Errorf("no rule of ours has this expression")
	}
	return nil
}

// dynset prints a change of a map, or of a set.
func (p *rulePrinter) dynset(b []byte) error {
	name, data := netlink.Find(b, unix.NFTA_DYNSET_SET_NAME).Text(), ""
	if netlink.Find(b, unix.NFTA_DYNSET_SREG_DATA).Data != nil {
		if len(p.loaded) != 2 {
			return fmt.Errorf("%d operands", len(p.loaded))
		}
		data = " : " + p.loaded[1].text
		p.loaded = p.loaded[:1]
	}
	key := p.take()
	if timeout := netlink.Find(b, unix.NFTA_DYNSET_TIMEOUT).Data; timeout != nil {
		p.say("update @%s { %s timeout %ds%s }", name, key, binary.BigEndian.Uint64(timeout)/1000, data)
	} else {
		p.say("delete @%s { %s%s }", name, key, data)
	}
	return nil
}

// ct stores what is known of the connection.
func (p *rulePrinter) ct(b []byte) error {
	switch key := netlink.Find(b, unix.NFTA_CT_KEY).Uint32(); key {
	case unix.NFT_CT_STATUS:
		return p.push(operand{kind: operandStatus})
	case p.d.originalDaddr:
		return p.push(operand{text: "ct original " + p.d.name + " daddr", kind: operandAddr})
	default:
		return fmt.Errorf("key %d", key)
	}
}

func (p *rulePrinter) payload(b []byte) error {
	if netlink.Find(b, unix.NFTA_PAYLOAD_SREG).Data != nil {
		p.say("%s daddr set %s", p.d.name, p.mapped)
		p.mapped = ""
		return nil
	}
	offset := int(netlink.Find(b, unix.NFTA_PAYLOAD_OFFSET).Uint32())
	size := int(netlink.Find(b, unix.NFTA_PAYLOAD_LEN).Uint32())
	switch base := netlink.Find(b, unix.NFTA_PAYLOAD_BASE).Uint32(); {
	case base == unix.NFT_PAYLOAD_TRANSPORT_HEADER && offset == 2 && size == 2:
		return p.push(operand{text: "th dport", kind: operandPort})
	case base == unix.NFT_PAYLOAD_NETWORK_HEADER && offset == p.d.daddr:
		return p.push(operand{text: p.d.name + " daddr", kind: operandAddr, size: size})
	case base == unix.NFT_PAYLOAD_NETWORK_HEADER && offset == p.d.saddr:
		return p.push(operand{text: p.d.name + " saddr", kind: operandAddr, size: size})
	}
	return fmt.Errorf("offset %d", offset)
}

func (p *rulePrinter) meta(b []byte) error {
	key := netlink.Find(b, unix.NFTA_META_KEY).Uint32()
	if netlink.Find(b, unix.NFTA_META_SREG).Data != nil {
		return p.setMark()
	}
	switch key {
	case unix.NFT_META_L4PROTO:
		return p.push(operand{text: "meta l4proto", kind: operandProtocol})
	case unix.NFT_META_MARK:
		return p.push(operand{text: "meta mark", kind: operandMark})
	case unix.NFT_META_IIFNAME:
		return p.push(operand{text: "iifname", kind: operandInterface})
	}
	return fmt.Errorf("key %d", key)
}

// setMark prints a change of the mark: a bit is set or flipped.
func (p *rulePrinter) setMark() error {
	if len(p.loaded) != 1 || p.loaded[0].mask == nil {
		return fmt.Errorf("no value for the mark")
	}
	o := p.loaded[0]
	p.loaded = nil
	flip := binary.NativeEndian.Uint32(o.flip)
	op := "|"
	if binary.NativeEndian.Uint32(o.mask) == ^uint32(0) {
		op = "^"
	}
	p.say("meta mark set meta mark %s %#x", op, flip)
	return nil
}

func (p *rulePrinter) fib(b []byte) error {
	side := "daddr"
	if netlink.Find(b, unix.NFTA_FIB_FLAGS).Uint32() == unix.NFTA_FIB_F_SADDR {
		side = "saddr"
	}
	return p.push(operand{text: "fib " + side + " type", kind: operandLocal})
}

func (p *rulePrinter) bitwise(b []byte) error {
	if len(p.loaded) == 0 {
		return fmt.Errorf("no operand")
	}
	last := &p.loaded[len(p.loaded)-1]
	last.mask = netlink.Find(netlink.Find(b, unix.NFTA_BITWISE_MASK).Data, unix.NFTA_DATA_VALUE).Data
	last.flip = netlink.Find(netlink.Find(b, unix.NFTA_BITWISE_XOR).Data, unix.NFTA_DATA_VALUE).Data
	if len(last.mask) == 0 || len(last.mask) != len(last.flip) {
		return fmt.Errorf("masks of %d and %d bytes", len(last.mask), len(last.flip))
	}
	return nil
}

// cmp prints a comparison.
func (p *rulePrinter) cmp(b []byte) error {
	if len(p.loaded) != 1 {
		return fmt.Errorf("%d operands", len(p.loaded))
	}
	o := p.loaded[0]
	p.loaded = nil
	not := ""
	if netlink.Find(b, unix.NFTA_CMP_OP).Uint32() == unix.NFT_CMP_NEQ {
		not = "!= "
	}
	value := netlink.Find(netlink.Find(b, unix.NFTA_CMP_DATA).Data, unix.NFTA_DATA_VALUE).Data
	switch o.kind {
	case operandAddr:
		p.say("%s %s%s", o.text, not, p.prefix(o, value))
	case operandProtocol:
		p.say("%s %s%s", o.text, not, protocolText(value[0]))
	case operandInterface:
		p.say("%s %s%s", o.text, not, interfaceText(value))
	case operandMark:
		p.say("meta mark & %#x != 0", binary.NativeEndian.Uint32(o.mask))
	case operandLocal:
		p.say("%s %slocal", o.text, not)
	case operandStatus:
		p.say("ct status %s", map[uint32]string{statusDNAT: "dnat", statusConfirmed: "confirmed"}[binary.NativeEndian.Uint32(o.mask)])
	default:
		return fmt.Errorf("%s compared", o.text)
	}
	return nil
}

// prefix prints the range of addresses of a comparison.
func (p *rulePrinter) prefix(o operand, value []byte) string {
	bits := o.size * 8
	if o.mask != nil {
		bits = 0
		for bits < len(o.mask)*8 && o.mask[bits/8]&(0x80>>(bits%8)) != 0 {
			bits++
		}
	}
	padded := make([]byte, p.d.addrBytes)
	copy(padded, value)
	addr, _ := netip.AddrFromSlice(padded)
	if bits == addr.BitLen() {
		return addr.String()
	}
	return netip.PrefixFrom(addr, bits).String()
}

// interfaceText prints a name. One that does not fill the register is a prefix of names.
func interfaceText(value []byte) string {
	name := string(bytes.TrimRight(value, "\x00"))
	if len(value) < unix.IFNAMSIZ {
		name += "*"
	}
	return fmt.Sprintf("%q", name)
}

// lookup prints a look-up in a set or map.
func (p *rulePrinter) lookup(b []byte) error {
	name := netlink.Find(b, unix.NFTA_LOOKUP_SET).Text()
	to := netlink.Find(b, unix.NFTA_LOOKUP_DREG)
	switch {
	case to.Data == nil && netlink.Find(b, unix.NFTA_LOOKUP_FLAGS).Uint32() != 0:
		p.say("%s != @%s", p.take(), name)
	case to.Data == nil:
		p.say("%s @%s", p.take(), name)
	case to.Uint32() == unix.NFT_REG_VERDICT:
		p.say("%s vmap @%s", p.take(), name)
	default:
		p.mapped = p.take() + " map @" + name
	}
	return nil
}

func (p *rulePrinter) immediate(b []byte) error {
	data := netlink.Find(b, unix.NFTA_IMMEDIATE_DATA).Data
	if verdict := netlink.Find(data, unix.NFTA_DATA_VERDICT).Data; verdict != nil {
		p.say("%s", verdictText(verdict))
		return nil
	}
	return fmt.Errorf("no rule of ours has a constant")
}

// nat prints a translation of the destination.
func (p *rulePrinter) nat() error {
	if p.mapped == "" {
		return fmt.Errorf("no rule of ours has a translation to a constant")
	}
	p.say("dnat %s to %s", p.d.name, p.mapped)
	return nil
}

// Element returns the arguments of "nft delete element" and the like: the set's name and the
// key.
func Element(family service.Family, key, container string) (set, text string, err error) {
	name, ok := setOf(container)
	if !ok {
		return "", "", fmt.Errorf("%s holds no elements", container)
	}
	s, err := definition(name)
	if err != nil {
		return "", "", err
	}
	text, err = keyText(dialects[family], s, key)
	return name, text, err
}
