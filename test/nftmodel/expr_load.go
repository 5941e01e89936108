// SPDX-License-Identifier: Apache-2.0

package nftmodel

import (
	"bytes"
	"encoding/binary"
	"math"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/slots"
)

// header is what an IP header of a family has where.
type header struct {
	protocol, saddr, daddr, addrBytes, size int
}

var headers = map[uint8]*header{
	unix.NFPROTO_IPV4: {protocol: 9, saddr: 12, daddr: 16, addrBytes: 4, size: 20},
	unix.NFPROTO_IPV6: {protocol: 6, saddr: 8, daddr: 24, addrBytes: 16, size: 40},
}

// knows reports whether a part of the header is what a packet here has: its
// addresses, or the protocol.
func (h *header) knows(offset, size int) bool {
	return offset >= h.saddr && offset+size <= h.size || offset == h.protocol && size == 1
}

// bytes returns the header with the parts that are known.
func (h *header) bytes(s *state) []byte {
	b := make([]byte, h.size)
	b[h.protocol] = s.protocol
	copy(b[h.saddr:], s.src.Addr().AsSlice())
	copy(b[h.daddr:], s.dst.Addr().AsSlice())
	return b
}

// portBytes is the size of what TCP, UDP and SCTP have in common: the ports.
const portBytes = 4

// ports returns the start of the transport header.
func ports(s *state) []byte {
	b := binary.BigEndian.AppendUint16(nil, s.src.Port())
	return binary.BigEndian.AppendUint16(b, s.dst.Port())
}

// addr reads an address from a register.
func (h *header) addr(r *registers, at int) netip.Addr {
	a, _ := netip.AddrFromSlice(r.load(at, h.addrBytes))
	return a
}

// payload loads a part of a header.
type payload struct {
	header    *header
	transport bool
	offset    int
	size      int
	to        int
}

func parsePayload(p *exprParser, data field) (expr, error) {
	if all, err := parseFields("payload", data.data, data.at+attrHeader, payloadAttrs...); err != nil {
		return nil, err
	} else if all.has(unix.NFTA_PAYLOAD_SREG) {
		return parseReaddress(p, data)
	}
	f, err := p.attrs("payload", data, []uint16{unix.NFTA_PAYLOAD_DREG, unix.NFTA_PAYLOAD_BASE, unix.NFTA_PAYLOAD_OFFSET, unix.NFTA_PAYLOAD_LEN}, nil, nil)
	if err != nil {
		return nil, err
	}
	size, offset := f.uint32(unix.NFTA_PAYLOAD_LEN), f.uint32(unix.NFTA_PAYLOAD_OFFSET)
	if offset > 255 || size > 255 {
		return nil, refusef(unix.ERANGE, "%d bytes at %d of a header", size, offset)
	}
	e := &payload{header: p.family(), offset: int(offset), size: int(size)}
	if e.to, err = p.target(f.uint32(unix.NFTA_PAYLOAD_DREG), e.size); err != nil {
		return nil, err
	}
	switch f.uint32(unix.NFTA_PAYLOAD_BASE) {
	case unix.NFT_PAYLOAD_NETWORK_HEADER:
		if !e.header.knows(e.offset, e.size) {
			return nil, unknownf("%d bytes at %d of the network header", e.size, e.offset)
		}
	case unix.NFT_PAYLOAD_TRANSPORT_HEADER:
		e.transport = true
		if e.offset+e.size > portBytes {
			return nil, unknownf("%d bytes at %d of the transport header", e.size, e.offset)
		}
	default:
		return nil, unknownf("header %d", f.uint32(unix.NFTA_PAYLOAD_BASE))
	}
	return e, nil
}

func (e *payload) eval(_ *walker, s *state, r *registers) bool {
	b := ports(s)
	if !e.transport {
		b = e.header.bytes(s)
	}
	r.store(e.to, b[e.offset:e.offset+e.size])
	return true
}

// payloadAttrs are the attributes of loading and of writing.
var payloadAttrs = []uint16{
	unix.NFTA_PAYLOAD_DREG, unix.NFTA_PAYLOAD_BASE, unix.NFTA_PAYLOAD_OFFSET, unix.NFTA_PAYLOAD_LEN,
	unix.NFTA_PAYLOAD_SREG, unix.NFTA_PAYLOAD_CSUM_TYPE, unix.NFTA_PAYLOAD_CSUM_OFFSET, unix.NFTA_PAYLOAD_CSUM_FLAGS,
}

// readdress writes the destination address in the header. The connection does not learn of it.
type readdress struct {
	header *header
	from   int
}

// checksumOffset is where the header of IPv4 has its checksum.
const checksumOffset = 10

func parseReaddress(p *exprParser, data field) (expr, error) {
	f, err := p.attrs("payload", data, []uint16{
		unix.NFTA_PAYLOAD_SREG, unix.NFTA_PAYLOAD_BASE, unix.NFTA_PAYLOAD_OFFSET, unix.NFTA_PAYLOAD_LEN,
	}, payloadAttrs, nil)
	if err != nil {
		return nil, err
	}
	e := &readdress{header: p.family()}
	sums := [...]uint32{
		f.uint32(unix.NFTA_PAYLOAD_CSUM_TYPE), f.uint32(unix.NFTA_PAYLOAD_CSUM_OFFSET), f.uint32(unix.NFTA_PAYLOAD_CSUM_FLAGS),
	}
	want := [...]uint32{0, 0, unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR}
	if p.table.family == unix.NFPROTO_IPV4 {
		want[0], want[1] = unix.NFT_PAYLOAD_CSUM_INET, checksumOffset
	}
	switch {
	case f.has(unix.NFTA_PAYLOAD_DREG):
		return nil, refusef(unix.EINVAL, "payload with two registers")
	case f.uint32(unix.NFTA_PAYLOAD_BASE) != unix.NFT_PAYLOAD_NETWORK_HEADER,
		f.uint32(unix.NFTA_PAYLOAD_OFFSET) != uint32(e.header.daddr), f.uint32(unix.NFTA_PAYLOAD_LEN) != uint32(e.header.addrBytes):
		return nil, unknownf("writing anything but the destination address")
	case sums != want:
		return nil, unknownf("writing the destination address with checksums %v", sums)
	}
	e.from, err = p.source(f.uint32(unix.NFTA_PAYLOAD_SREG), e.header.addrBytes)
	return e, err
}

func (e *readdress) eval(_ *walker, s *state, r *registers) bool {
	s.dst = netip.AddrPortFrom(e.header.addr(r, e.from), s.dst.Port())
	return true
}

// meta loads a property of the packet.
type meta struct {
	key    uint32
	family uint8
	to     int
}

// setMark sets the packet's mark.
type setMark struct{ from int }

// interfaceBytes is IFNAMSIZ.
const interfaceBytes = 16

var metaBytes = map[uint32]int{
	unix.NFT_META_MARK: 4, unix.NFT_META_NFPROTO: 1, unix.NFT_META_L4PROTO: 1,
	unix.NFT_META_IIFNAME: interfaceBytes, unix.NFT_META_OIFNAME: interfaceBytes,
}

func parseMeta(p *exprParser, data field) (expr, error) {
	f, err := p.attrs("meta", data, []uint16{unix.NFTA_META_KEY}, []uint16{unix.NFTA_META_DREG, unix.NFTA_META_SREG}, nil)
	if err != nil {
		return nil, err
	}
	key := f.uint32(unix.NFTA_META_KEY)
	switch {
	case f.has(unix.NFTA_META_DREG) == f.has(unix.NFTA_META_SREG):
		return nil, refusef(unix.EINVAL, "meta with no register, or with two")
	case metaBytes[key] == 0:
		return nil, unknownf("meta key %d", key)
	case f.has(unix.NFTA_META_DREG):
		to, err := p.target(f.uint32(unix.NFTA_META_DREG), metaBytes[key])
		return &meta{key: key, family: p.table.family, to: to}, err
	case key != unix.NFT_META_MARK:
		return nil, refusef(unix.EOPNOTSUPP, "setting meta key %d", key)
	}
	from, err := p.source(f.uint32(unix.NFTA_META_SREG), metaBytes[key])
	return &setMark{from}, err
}

func (e *meta) eval(w *walker, s *state, r *registers) bool {
	switch e.key {
	case unix.NFT_META_MARK:
		r.storeUint32(e.to, s.mark)
	case unix.NFT_META_NFPROTO:
		r.store(e.to, []byte{e.family})
	case unix.NFT_META_L4PROTO:
		r.store(e.to, []byte{s.protocol})
	case unix.NFT_META_IIFNAME:
		r.store(e.to, interfaceName(w.in))
	case unix.NFT_META_OIFNAME:
		r.store(e.to, interfaceName(w.out))
	}
	return true
}

// interfaceName pads a name; that of no interface is all zero.
func interfaceName(name string) []byte {
	b := make([]byte, interfaceBytes)
	copy(b[:interfaceBytes-1], name)
	return b
}

func (e *setMark) eval(_ *walker, s *state, r *registers) bool {
	s.mark = hostUint32(r.load(e.from, wordBytes))
	return true
}

// conntrack loads the state or the status of the connection, which is a new one, or the address that
// its sender asked for.
type conntrack struct {
	key uint32
	to  int
}

// Attributes and keys that package unix does not name, or not all of.
const (
	ctOriginal = 0  // IP_CT_DIR_ORIGINAL
	ctDstIP    = 20 // NFT_CT_DST_IP, Linux 4.17
	ctDstIP6   = 22 // NFT_CT_DST_IP6
)

// Bits of linux/netfilter/nf_conntrack_common.h.
const (
	stateNew   = 1 << 3 // NF_CT_STATE_BIT(IP_CT_NEW)
	statusDNAT = 1 << 5 // IPS_DST_NAT
)

func parseConntrack(p *exprParser, data field) (expr, error) {
	f, err := p.attrs("ct", data, []uint16{unix.NFTA_CT_DREG, unix.NFTA_CT_KEY}, nil, []uint16{unix.NFTA_CT_DIRECTION})
	if err == nil {
		err = f.numbers(1, unix.NFTA_CT_DIRECTION)
	}
	if err != nil {
		return nil, err
	}
	key, size, directed := f.uint32(unix.NFTA_CT_KEY), wordBytes, true
	switch {
	case key == unix.NFT_CT_STATE || key == unix.NFT_CT_STATUS:
		directed = false
	case key == ctDstIP && p.table.family == unix.NFPROTO_IPV4, key == ctDstIP6 && p.table.family == unix.NFPROTO_IPV6:
		size = p.family().addrBytes
	default:
		return nil, unknownf("ct key %d", key)
	}
	switch {
	case directed != f.has(unix.NFTA_CT_DIRECTION):
		return nil, refusef(unix.EINVAL, "ct key %d with the wrong direction, or without", key)
	case directed && f.get(unix.NFTA_CT_DIRECTION).data[0] != ctOriginal:
		return nil, unknownf("what the answers of a connection have")
	}
	to, err := p.target(f.uint32(unix.NFTA_CT_DREG), size)
	return &conntrack{key, to}, err
}

func (e *conntrack) eval(_ *walker, s *state, r *registers) bool {
	if e.key == ctDstIP || e.key == ctDstIP6 {
		r.store(e.to, s.asked.AsSlice())
		return true
	}
	bits := uint32(stateNew)
	if e.key == unix.NFT_CT_STATUS {
		bits = 0
		if s.translated {
			bits = statusDNAT
		}
	}
	r.storeUint32(e.to, bits)
	return true
}

// fib loads the type of an address of the packet.
type fib struct {
	source bool
	to     int
}

func parseFIB(p *exprParser, data field) (expr, error) {
	f, err := p.attrs("fib", data, []uint16{unix.NFTA_FIB_DREG, unix.NFTA_FIB_RESULT, unix.NFTA_FIB_FLAGS}, nil, nil)
	if err != nil {
		return nil, err
	}
	const either = unix.NFTA_FIB_F_SADDR | unix.NFTA_FIB_F_DADDR
	flags := f.uint32(unix.NFTA_FIB_FLAGS)
	switch {
	case flags&either == 0 || flags&either == either:
		return nil, refusef(unix.EINVAL, "fib flags %#x", flags)
	case flags&^either != 0 || f.uint32(unix.NFTA_FIB_RESULT) != unix.NFT_FIB_RESULT_ADDRTYPE:
		return nil, unknownf("fib flags %#x, result %d", flags, f.uint32(unix.NFTA_FIB_RESULT))
	}
	to, err := p.target(f.uint32(unix.NFTA_FIB_DREG), wordBytes)
	return &fib{source: flags&unix.NFTA_FIB_F_SADDR != 0, to: to}, err
}

func (e *fib) eval(w *walker, s *state, r *registers) bool {
	addr := s.dst.Addr()
	if e.source {
		addr = s.src.Addr()
	}
	r.storeUint32(e.to, w.addressType(addr))
	return true
}

// addressType is RTN_…; there are no routes here that know of broadcasts.
func (w *walker) addressType(a netip.Addr) uint32 {
	switch {
	case w.kernel.local(a):
		return unix.RTN_LOCAL
	case a.IsMulticast():
		return unix.RTN_MULTICAST
	default:
		return unix.RTN_UNICAST
	}
}

// numgen loads a number from offset to offset+modulus-1: a random one, or the next one. Where the turns are is not
// modelled, so that each number can be the next one.
type numgen struct {
	modulus, offset uint32
	to              int
}

func parseNumgen(p *exprParser, data field) (expr, error) {
	f, err := p.attrs("numgen", data, []uint16{unix.NFTA_NG_DREG, unix.NFTA_NG_MODULUS, unix.NFTA_NG_TYPE}, []uint16{unix.NFTA_NG_OFFSET}, nil)
	if err != nil {
		return nil, err
	}
	e := &numgen{modulus: f.uint32(unix.NFTA_NG_MODULUS), offset: f.uint32(unix.NFTA_NG_OFFSET)}
	switch {
	case f.uint32(unix.NFTA_NG_TYPE) > unix.NFT_NG_RANDOM:
		return nil, refusef(unix.EINVAL, "numgen type %d", f.uint32(unix.NFTA_NG_TYPE))
	case e.modulus == 0:
		return nil, refusef(unix.ERANGE, "a random number below 0")
	case uint64(e.offset)+uint64(e.modulus)-1 > math.MaxUint32:
		return nil, refusef(unix.EOVERFLOW, "a random number beyond 32 bits")
	}
	e.to, err = p.target(f.uint32(unix.NFTA_NG_DREG), wordBytes)
	return e, err
}

// eval is not called: the walker draws the number, which may be each of them.
func (e *numgen) eval(*walker, *state, *registers) bool {
	panic("nftmodel: a number is drawn by the walker")
}

func (e *numgen) draw(r *registers, n uint32) { r.storeUint32(e.to, e.offset+n) }

// hash loads the Jenkins hash of bytes, scaled to numbers below the modulus.
type hash struct {
	from, size, to int
	modulus, seed  uint32
}

func parseHash(p *exprParser, data field) (expr, error) {
	f, err := p.attrs("hash", data, []uint16{
		unix.NFTA_HASH_SREG, unix.NFTA_HASH_DREG, unix.NFTA_HASH_LEN, unix.NFTA_HASH_MODULUS, unix.NFTA_HASH_SEED,
	}, []uint16{unix.NFTA_HASH_OFFSET, unix.NFTA_HASH_TYPE}, nil)
	if err != nil {
		return nil, err
	}
	e := &hash{size: int(f.uint32(unix.NFTA_HASH_LEN)), modulus: f.uint32(unix.NFTA_HASH_MODULUS), seed: f.uint32(unix.NFTA_HASH_SEED)}
	switch {
	case f.uint32(unix.NFTA_HASH_TYPE) != unix.NFT_HASH_JENKINS, f.uint32(unix.NFTA_HASH_OFFSET) != 0, e.size%wordBytes != 0:
		return nil, unknownf("hash of type %d, of %d bytes", f.uint32(unix.NFTA_HASH_TYPE), e.size)
	case e.modulus == 0:
		return nil, refusef(unix.ERANGE, "a hash below 0")
	}
	if e.from, err = p.source(f.uint32(unix.NFTA_HASH_SREG), e.size); err == nil {
		e.to, err = p.target(f.uint32(unix.NFTA_HASH_DREG), wordBytes)
	}
	return e, err
}

func (e *hash) eval(_ *walker, _ *state, r *registers) bool {
	r.storeUint32(e.to, slots.Scale(slots.Jenkins(r.load(e.from, e.size), e.seed), e.modulus))
	return true
}

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
		v, err := parseVerdict(p.table, f.get(unix.NFTA_IMMEDIATE_DATA))
		if err != nil {
			return nil, err
		}
		return &immediateVerdict{*v}, nil
	}
	value, err := parseValue(f.get(unix.NFTA_IMMEDIATE_DATA))
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
