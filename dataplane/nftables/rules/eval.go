// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/slots"
)

// registers are the state that the expressions of one rule pass on to the next.
type registers struct {
	data [registerBytes]byte
	// found is the last element that a lookup found, and set its set; nil for none.
	found *Element
	set   string
}

// store writes a value. The rest of its last word becomes zero.
func (r *registers) store(register uint32, value []byte) error {
	at, ok := offsetOf(register, len(value))
	if !ok {
		return fmt.Errorf("%d bytes in register %d", len(value), register)
	}
	clear(r.data[at : at+(len(value)+WordBytes-1)/WordBytes*WordBytes])
	copy(r.data[at:], value)
	return nil
}

func (r *registers) load(register uint32, size int) ([]byte, error) {
	at, ok := offsetOf(register, size)
	if !ok {
		return nil, fmt.Errorf("%d bytes of register %d", size, register)
	}
	return r.data[at : at+size], nil
}

// result is the result of an expression.
type result struct {
	// mismatch ends the rule. verdict ends the rule with a verdict.
	mismatch bool
	verdict  *Verdict
}

// eval evaluates one expression, except those that can return any number; see walk.drawn. It returns an error for
// an unsupported expression.
func (w *walk) eval(e Expr, s *state, r *registers) (result, error) {
	switch e := e.(type) {
	case *Load, *Meta, *Conn, *ConnOriginal, *Fib:
		to, value, err := w.loaded(e, s)
		if err == nil {
			err = r.store(to, value)
		}
		return result{}, err
	case *Hash:
		key, err := r.load(e.From, int(e.Size))
		if err == nil {
			err = r.store(e.To, word(slots.Scale(slots.Jenkins(key, e.Seed), e.Modulus)))
		}
		return result{}, err
	case *Bitwise:
		return result{}, r.bitwise(e)
	case *Compare:
		return r.compare(e)
	case *Member, *VerdictMap, *Map:
		return w.lookup(e, r)
	case *Verdict:
		return result{verdict: e}, nil
	case *Counter:
		return result{}, nil
	case *Dynset:
		return result{}, nil // no rule of Sluice looks up an element that the same packet added or removed
	default:
		return w.act(e, s, r)
	}
}

// loaded returns a register and its new value.
func (w *walk) loaded(e Expr, s *state) (to uint32, value []byte, err error) {
	switch e := e.(type) {
	case *Load:
		value, err = w.payload(e, s)
		return e.To, value, err
	case *Meta:
		switch e.Key {
		case unix.NFT_META_MARK:
			return e.To, word(s.mark), nil
		case unix.NFT_META_L4PROTO:
			return e.To, []byte{w.packet.Protocol.Number()}, nil
		case unix.NFT_META_IIFNAME:
			name := make([]byte, unix.IFNAMSIZ)
			copy(name[:unix.IFNAMSIZ-1], w.packet.In)
			return e.To, name, nil
		}
	case *Conn:
		if e.Key == unix.NFT_CT_STATUS {
			return e.To, word(s.status()), nil
		}
	case *ConnOriginal:
		if e.Key == w.header.OriginalDaddr {
			return e.To, w.packet.Dst.Addr().AsSlice(), nil
		}
	case *Fib:
		if e.Result == unix.NFT_FIB_RESULT_ADDRTYPE && e.Flags == unix.NFTA_FIB_F_DADDR {
			return e.To, word(w.addrType(s.dst.Addr())), nil
		}
		if e.Result == unix.NFT_FIB_RESULT_ADDRTYPE && e.Flags == unix.NFTA_FIB_F_SADDR {
			return e.To, word(w.addrType(w.packet.Src.Addr())), nil
		}
	}
	return 0, nil, unknown(e)
}

func unknown(e Expr) error { return fmt.Errorf("%s: no evaluation of %+v", e.name(), e) }

func word(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// payload returns bytes of an address or of the ports.
func (w *walk) payload(e *Load, s *state) ([]byte, error) {
	for _, part := range []struct {
		base   uint32
		offset int
		bytes  []byte
	}{
		{unix.NFT_PAYLOAD_NETWORK_HEADER, w.header.Saddr, w.packet.Src.Addr().AsSlice()},
		{unix.NFT_PAYLOAD_NETWORK_HEADER, w.header.Daddr, s.dst.Addr().AsSlice()},
		{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, binary.BigEndian.AppendUint16(nil, w.packet.Src.Port())},
		{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, binary.BigEndian.AppendUint16(nil, s.dst.Port())},
	} {
		from := int(e.Offset) - part.offset
		if e.Base == part.base && from >= 0 && e.Size > 0 && from+int(e.Size) <= len(part.bytes) {
			return part.bytes[from : from+int(e.Size)], nil
		}
	}
	return nil, unknown(e)
}

// status returns the status bits of the connection, which is new.
func (s *state) status() uint32 {
	if s.translated {
		return StatusDNAT
	}
	return 0
}

// addrType returns RTN_… for an address.
func (w *walk) addrType(a netip.Addr) uint32 {
	switch {
	case w.Local(a):
		return unix.RTN_LOCAL
	case a.IsMulticast():
		return unix.RTN_MULTICAST
	default:
		return unix.RTN_UNICAST
	}
}

func (r *registers) bitwise(e *Bitwise) error {
	value, err := r.load(e.From, len(e.Mask))
	if err != nil {
		return err
	}
	changed := make([]byte, len(value))
	for i := range value {
		changed[i] = value[i]&e.Mask[i] ^ e.Flip[i]
	}
	return r.store(e.To, changed)
}

func (r *registers) compare(e *Compare) (result, error) {
	value, err := r.load(e.From, len(e.Value))
	if err == nil && e.Op != unix.NFT_CMP_EQ && e.Op != unix.NFT_CMP_NEQ {
		err = unknown(e)
	}
	return result{mismatch: (string(value) == e.Value) != (e.Op == unix.NFT_CMP_EQ)}, err
}

// lookup evaluates the three expressions that look up a key.
func (w *walk) lookup(e Expr, r *registers) (result, error) {
	var name string
	var from, to uint32
	inverted, verdicts := false, false
	switch e := e.(type) {
	case *Member:
		name, from, inverted = e.Set, e.From, e.Inverted
	case *VerdictMap:
		name, from, verdicts = e.Set, e.From, true
	case *Map:
		name, from, to = e.Set, e.From, e.To
	}
	set := w.Sets[name]
	if set == nil {
		return result{}, fmt.Errorf("no set %s", name)
	}
	key, err := r.load(from, set.KeyBytes)
	if err != nil {
		return result{}, err
	}
	found := set.find(string(key))
	if found == nil || inverted {
		return result{mismatch: (found == nil) != inverted}, nil
	}
	r.found, r.set = found, name
	switch {
	case verdicts && found.Verdict == nil, to != 0 && len(found.Data) == 0:
		return result{}, fmt.Errorf("%s: an element of %s without data", e.name(), name)
	case verdicts:
		return result{verdict: found.Verdict}, nil
	case to != 0:
		err = r.store(to, []byte(found.Data))
	}
	return result{}, err
}

// act evaluates an expression that changes the packet.
func (w *walk) act(e Expr, s *state, r *registers) (result, error) {
	accepted := result{verdict: &Verdict{Code: Accept}}
	switch e := e.(type) {
	case *SetMeta:
		mark, err := r.load(e.From, WordBytes)
		if err != nil || e.Key != unix.NFT_META_MARK {
			return result{}, unknown(e)
		}
		s.mark = binary.NativeEndian.Uint32(mark)
		return result{}, nil
	case *Write:
		addr, err := r.load(e.From, w.header.AddrBytes)
		if err != nil || e.Base != unix.NFT_PAYLOAD_NETWORK_HEADER || int(e.Offset) != w.header.Daddr || int(e.Size) != len(addr) {
			return result{}, unknown(e)
		}
		s.dst = netip.AddrPortFrom(addrOf(addr), s.dst.Port())
		return result{}, nil
	case *NAT:
		addr, err := r.load(e.Addr, w.header.AddrBytes)
		port, errPort := r.load(e.Port, 2)
		if err != nil || errPort != nil || e.Type != unix.NFT_NAT_DNAT {
			return result{}, unknown(e)
		}
		s.dst = netip.AddrPortFrom(addrOf(addr), binary.BigEndian.Uint16(port))
		s.delivered, s.translated = true, s.dst != w.packet.Dst
		return accepted, nil
	case *Masquerade:
		s.masqueraded = true
		return accepted, nil
	case *Reject:
		s.end = Rejected
		return result{verdict: &Verdict{Code: Drop}}, nil
	}
	return result{}, unknown(e)
}

func addrOf(b []byte) netip.Addr {
	addr, _ := netip.AddrFromSlice(b)
	return addr
}
