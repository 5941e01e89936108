// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// Text prints the rule in nft's syntax. It returns an error for a rule that it cannot print.
func (r *Rule) Text(family service.Family) (string, error) {
	p := &printer{h: &Headers[family]}
	for _, e := range r.Exprs {
		if err := p.expr(e); err != nil {
			return "", fmt.Errorf("%s: %w", e.name(), err)
		}
	}
	if len(p.loaded) > 0 || p.mapped != "" {
		return "", fmt.Errorf("the rule loads a value that it does not use")
	}
	if r.Comment != "" {
		p.say("comment %q", r.Comment)
	}
	return strings.Join(p.words, " "), nil
}

// printer tracks the values that expressions load into registers.
type printer struct {
	h     *Header
	words []string
	// loaded are the values in registers that no expression has used yet.
	loaded []operand
	// mapped is the map whose data is in a register, or "".
	mapped string
}

// operand is a loaded value.
type operand struct {
	text string
	// to is the register of bytes loaded from a header.
	to uint32
	// compared prints a comparison with a value; nil if comparisons cannot be printed. mask and flip are "" unless
	// the rule applies them.
	compared func(o *operand, not, value string) (string, bool)
	mask     string
	flip     string
}

func (p *printer) say(format string, args ...any) {
	p.words = append(p.words, fmt.Sprintf(format, args...))
}

// take returns all operands as a concatenation and frees the registers.
func (p *printer) take() string {
	var texts []string
	for _, o := range p.loaded {
		texts = append(texts, o.text)
	}
	p.loaded = nil
	return strings.Join(texts, " . ")
}

// takeMapped returns the map whose data is in a register.
func (p *printer) takeMapped() (mapped string, err error) {
	mapped, p.mapped = p.mapped, ""
	if mapped == "" {
		return "", fmt.Errorf("a constant")
	}
	return mapped, nil
}

// expr prints one expression, or notes the value that it loads.
func (p *printer) expr(e Expr) error {
	switch e := e.(type) {
	case *Load, *Meta, *Conn, *ConnOriginal, *Fib, *Number:
		return p.load(e)
	case *Hash:
		return p.hash(e)
	case *Bitwise:
		return p.bitwise(e)
	case *Compare:
		return p.compare(e)
	case *Member:
		p.say("%s %s@%s", p.take(), not(e.Inverted), e.Set)
	case *VerdictMap:
		p.say("%s vmap @%s", p.take(), e.Set)
	case *Map:
		p.mapped = p.take() + " map @" + e.Set
	case *Dynset:
		return p.dynset(e)
	default:
		return p.action(e)
	}
	return nil
}

// action prints an expression that changes the packet or ends the rule.
func (p *printer) action(e Expr) error {
	switch e := e.(type) {
	case *Verdict:
		p.say("%s", e.Text())
		return nil
	case *SetMeta:
		return p.setMark(e)
	case *Write:
		mapped, err := p.takeMapped()
		p.say("%s daddr set %s", p.h.Name, mapped)
		if err == nil && (e.Base != unix.NFT_PAYLOAD_NETWORK_HEADER || int(e.Offset) != p.h.Daddr) {
			err = fmt.Errorf("offset %d", e.Offset)
		}
		return err
	case *NAT:
		mapped, err := p.takeMapped()
		p.say("dnat %s to %s", p.h.Name, mapped)
		if err == nil && (e.Type != unix.NFT_NAT_DNAT || e.Family != uint32(p.h.Protocol)) {
			err = fmt.Errorf("type %d to family %d", e.Type, e.Family)
		}
		return err
	case *Masquerade:
		if e.Flags == unix.NF_NAT_RANGE_PROTO_RANDOM_FULLY {
			p.say("masquerade fully-random")
			return nil
		}
	case *Reject:
		if e.Code == p.h.PortUnreachable {
			p.say("reject")
			return nil
		}
	case *Reset:
		p.say("reject with tcp reset")
		return nil
	case *Counter:
		p.say("counter")
		return nil
	case *Offload:
		p.say("flow add @%s", e.Flowtable)
		return nil
	}
	return fmt.Errorf("no text for an expression of type %T", e)
}

func not(inverted bool) string {
	if inverted {
		return "!= "
	}
	return ""
}

// load notes a loaded value.
func (p *printer) load(e Expr) error {
	var o operand
	switch e := e.(type) {
	case *Load:
		o = p.payload(e)
		o.to = e.To
	case *Meta:
		o = metaOperand(e)
	case *Conn:
		switch e.Key {
		case unix.NFT_CT_STATUS:
			o = operand{text: "ct status", compared: statusText}
		case unix.NFT_CT_STATE:
			o = operand{text: "ct state", compared: stateText}
		}
	case *ConnOriginal:
		if e.Key == p.h.OriginalDaddr {
			o = operand{text: "ct original " + p.h.Name + " daddr"}
		}
	case *Fib:
		side := map[uint32]string{unix.NFTA_FIB_F_DADDR: "daddr", unix.NFTA_FIB_F_SADDR: "saddr"}[e.Flags]
		if side != "" && e.Result == unix.NFT_FIB_RESULT_ADDRTYPE {
			o = operand{text: "fib " + side + " type", compared: localText}
		}
	case *Number:
		o = operand{text: fmt.Sprintf("numgen random mod %d", e.Modulus), compared: numberText}
		if e.InTurn {
			o.text = fmt.Sprintf("numgen inc mod %d", e.Modulus)
		}
	}
	if o.text == "" {
		return fmt.Errorf("no text for an expression of type %T", e)
	}
	p.loaded = append(p.loaded, o)
	return nil
}

// hash replaces the hashed operands, which were loaded last.
func (p *printer) hash(e *Hash) error {
	first := slices.IndexFunc(p.loaded, func(o operand) bool { return o.to == e.From })
	if first < 0 {
		return fmt.Errorf("hash of register %d", e.From)
	}
	hashed := p.loaded[first:]
	p.loaded = p.loaded[:first]
	texts := make([]string, len(hashed))
	for i, o := range hashed {
		texts[i] = o.text
	}
	p.loaded = append(p.loaded, operand{text: fmt.Sprintf("jhash %s mod %d seed %#x", strings.Join(texts, " . "), e.Modulus, e.Seed)})
	return nil
}

func (p *printer) payload(e *Load) operand {
	addr := operand{compared: func(o *operand, not, value string) (string, bool) { return p.addrText(o, not, value) }}
	switch {
	case e.Base == unix.NFT_PAYLOAD_TRANSPORT_HEADER && e.Offset == 0 && e.Size == 2:
		return operand{text: "th sport", compared: portText}
	case e.Base == unix.NFT_PAYLOAD_TRANSPORT_HEADER && e.Offset == 2 && e.Size == 2:
		return operand{text: "th dport", compared: portText}
	case e.Base == unix.NFT_PAYLOAD_NETWORK_HEADER && int(e.Offset) == p.h.Daddr:
		addr.text = p.h.Name + " daddr"
	case e.Base == unix.NFT_PAYLOAD_NETWORK_HEADER && int(e.Offset) == p.h.Saddr:
		addr.text = p.h.Name + " saddr"
	}
	return addr
}

func metaOperand(e *Meta) operand {
	switch e.Key {
	case unix.NFT_META_L4PROTO:
		return operand{text: "meta l4proto", compared: func(o *operand, not, value string) (string, bool) {
			if len(value) != 1 || o.mask != "" {
				return "", false
			}
			return o.text + " " + not + ProtocolText(value[0]), true
		}}
	case unix.NFT_META_MARK:
		return operand{text: "meta mark", compared: markText}
	case unix.NFT_META_IIFNAME:
		return operand{text: "iifname", compared: interfaceText}
	}
	return operand{}
}

// bits returns the mask of an operand if the comparison tests whether any of its bits is set; false for any other.
func (o *operand) bits(not, value string) (uint32, bool) {
	if len(o.mask) != WordBytes || o.flip != zeroWord || value != zeroWord || not == "" {
		return 0, false
	}
	return binary.NativeEndian.Uint32([]byte(o.mask)), true
}

const zeroWord = "\x00\x00\x00\x00"

func markText(o *operand, not, value string) (string, bool) {
	bits, ok := o.bits(not, value)
	return fmt.Sprintf("meta mark & %#x != 0", bits), ok
}

func statusText(o *operand, not, value string) (string, bool) {
	bits, _ := o.bits(not, value)
	name := map[uint32]string{StatusDNAT: "dnat", StatusConfirmed: "confirmed"}[bits]
	return "ct status " + name, name != ""
}

func stateText(o *operand, not, value string) (string, bool) {
	bits, _ := o.bits(not, value)
	return "ct state established", bits == StateEstablished
}

func numberText(o *operand, not, value string) (string, bool) {
	if len(value) != WordBytes || o.mask != "" {
		return "", false
	}
	return fmt.Sprintf("%s %s%d", o.text, not, binary.NativeEndian.Uint32([]byte(value))), true
}

func portText(o *operand, not, value string) (string, bool) {
	if len(value) != 2 || o.mask != "" {
		return "", false
	}
	return fmt.Sprintf("%s %s%d", o.text, not, binary.BigEndian.Uint16([]byte(value))), true
}

func localText(o *operand, not, value string) (string, bool) {
	ok := o.mask == "" && value == string(binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL))
	return o.text + " " + not + "local", ok
}

// interfaceText prints an interface name. A name that does not fill the register is a prefix.
func interfaceText(o *operand, not, value string) (string, bool) {
	name := strings.TrimRight(value, "\x00")
	if len(value) < unix.IFNAMSIZ {
		name += "*"
	}
	return fmt.Sprintf("iifname %s%q", not, name), o.mask == ""
}

// addrText prints the range of addresses of a comparison.
func (p *printer) addrText(o *operand, not, value string) (string, bool) {
	bits := len(value) * 8
	if o.mask != "" {
		bits = 0
		for bits < len(o.mask)*8 && o.mask[bits/8]&(0x80>>(bits%8)) != 0 {
			bits++
		}
	}
	padded := make([]byte, p.h.AddrBytes)
	copy(padded, value)
	addr, _ := netip.AddrFromSlice(padded)
	text := addr.String()
	if bits != addr.BitLen() {
		text = netip.PrefixFrom(addr, bits).String()
	}
	return o.text + " " + not + text, bits <= addr.BitLen()
}

// one returns the only operand.
func (p *printer) one() (operand, error) {
	if len(p.loaded) != 1 {
		return operand{}, fmt.Errorf("%d operands", len(p.loaded))
	}
	o := p.loaded[0]
	p.loaded = nil
	return o, nil
}

func (p *printer) bitwise(e *Bitwise) error {
	o, err := p.one()
	if err == nil {
		o.mask, o.flip = e.Mask, e.Flip
		p.loaded = append(p.loaded, o)
	}
	return err
}

func (p *printer) compare(e *Compare) error {
	o, err := p.one()
	if err != nil {
		return err
	}
	if o.compared != nil && (e.Op == unix.NFT_CMP_EQ || e.Op == unix.NFT_CMP_NEQ) {
		if text, ok := o.compared(&o, not(e.Op == unix.NFT_CMP_NEQ), e.Value); ok {
			p.words = append(p.words, text)
			return nil
		}
	}
	return fmt.Errorf("no text for a comparison of %q with %q", o.text, e.Value)
}

// setMark prints a change of the mark: a bit is set or flipped.
func (p *printer) setMark(e *SetMeta) error {
	o, err := p.one()
	if err == nil && (e.Key != unix.NFT_META_MARK || o.text != "meta mark" || len(o.mask) != WordBytes) {
		err = fmt.Errorf("key %d to %q", e.Key, o.text)
	}
	if err != nil {
		return err
	}
	mask, flip := binary.NativeEndian.Uint32([]byte(o.mask)), binary.NativeEndian.Uint32([]byte(o.flip))
	switch {
	case mask == ^uint32(0):
		p.say("meta mark set meta mark ^ %#x", flip)
	case mask == ^flip:
		p.say("meta mark set meta mark | %#x", flip)
	default:
		err = fmt.Errorf("mask %#x, flip %#x", mask, flip)
	}
	return err
}

// dynset prints a change of a map, or of a set.
func (p *printer) dynset(e *Dynset) error {
	data := ""
	if e.Data != 0 {
		if len(p.loaded) != 2 {
			return fmt.Errorf("%d operands", len(p.loaded))
		}
		data = " : " + p.loaded[1].text
		p.loaded = p.loaded[:1]
	}
	switch {
	case e.Op == unix.NFT_DYNSET_OP_UPDATE && e.Milliseconds > 0:
		p.say("update @%s { %s timeout %ds%s }", e.Set, p.take(), e.Milliseconds/1000, data)
	case e.Op == DynsetDelete && e.Milliseconds == 0:
		p.say("delete @%s { %s%s }", e.Set, p.take(), data)
	default:
		return fmt.Errorf("operation %d for %d ms", e.Op, e.Milliseconds)
	}
	return nil
}

// Text prints the verdict.
func (e *Verdict) Text() string {
	switch e.Code {
	case Goto:
		return "goto " + e.Chain
	case Jump:
		return "jump " + e.Chain
	case Drop:
		return "drop"
	case Return:
		return "return"
	default:
		return "accept"
	}
}

// Text prints the hook and the priority. The priority is a number because some versions of nft reject names such
// as dstnat on the output hook.
func (h *Base) Text() string {
	return fmt.Sprintf("type %s hook %s priority %d; policy accept;", h.Kind, h.HookName(), h.Priority)
}

// HookName returns nft's name of the hook.
func (h *Base) HookName() string {
	names := [...]string{"prerouting", "input", "forward", "output", "postrouting"}
	if int(h.Hook) < len(names) {
		return names[h.Hook]
	}
	return strconv.Itoa(int(h.Hook))
}

// ProtocolText prints the number of a transport protocol.
func ProtocolText(number byte) string {
	if p, ok := service.ProtocolOf(number); ok {
		return p.String()
	}
	return strconv.Itoa(int(number))
}
