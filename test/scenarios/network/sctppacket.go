package network

import (
	"encoding/binary"
	"hash/crc32"
)

// The first two packets of an SCTP association (RFC 9260, sections 3.1 to 3.3.3):
// INIT, and INIT ACK, whose state cookie may hold anything.
const (
	sctpHeader = 12 // ports, verification tag, checksum
	sctpInit   = 20 // chunk header, initiate tag, window, streams, initial TSN
	initChunk  = 1
	ackChunk   = 2
	cookieType = 7
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sctpPacket is an INIT, or an INIT ACK if it has a cookie.
type sctpPacket struct {
	source, target uint16
	// tag is the verification tag, 0 for INIT; initiate is the one that the other
	// side has to use.
	tag, initiate uint32
	cookie        string
}

func (p sctpPacket) bytes() []byte {
	b := make([]byte, sctpHeader+sctpInit)
	binary.BigEndian.PutUint16(b[0:], p.source)
	binary.BigEndian.PutUint16(b[2:], p.target)
	binary.BigEndian.PutUint32(b[4:], p.tag)
	chunk := b[sctpHeader:]
	chunk[0] = initChunk
	if p.cookie != "" {
		chunk[0] = ackChunk
		b = append(b, 0, cookieType)
		b = binary.BigEndian.AppendUint16(b, uint16(4+len(p.cookie)))
		b = append(b, p.cookie...)
		chunk = b[sctpHeader:]
	}
	binary.BigEndian.PutUint16(chunk[2:], uint16(len(chunk)))
	binary.BigEndian.PutUint32(chunk[4:], p.initiate)
	const window = 65536
	binary.BigEndian.PutUint32(chunk[8:], window)
	binary.BigEndian.PutUint16(chunk[12:], 1) // streams each way
	binary.BigEndian.PutUint16(chunk[14:], 1)
	binary.BigEndian.PutUint32(chunk[16:], 1)
	for len(b)%4 != 0 {
		b = append(b, 0) // counts in no length
	}
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, castagnoli))
	return b
}

// parseSCTP reads what bytes has written. It is false for everything else, and for
// a packet whose checksum whoever translated it got wrong.
func parseSCTP(b []byte) (sctpPacket, bool) {
	if len(b) < sctpHeader+sctpInit {
		return sctpPacket{}, false
	}
	p := sctpPacket{
		source: binary.BigEndian.Uint16(b[0:]), target: binary.BigEndian.Uint16(b[2:]),
		tag: binary.BigEndian.Uint32(b[4:]), initiate: binary.BigEndian.Uint32(b[sctpHeader+4:]),
	}
	whole := append([]byte(nil), b...)
	binary.LittleEndian.PutUint32(whole[8:], 0)
	if crc32.Checksum(whole, castagnoli) != binary.LittleEndian.Uint32(b[8:]) {
		return sctpPacket{}, false
	}
	switch b[sctpHeader] {
	case initChunk:
		return p, true
	case ackChunk:
		rest := b[sctpHeader+sctpInit:]
		if len(rest) < 4 || rest[1] != cookieType {
			return sctpPacket{}, false
		}
		size := int(binary.BigEndian.Uint16(rest[2:]))
		if size < 4 || size > len(rest) {
			return sctpPacket{}, false
		}
		p.cookie = string(rest[4:size])
		return p, true
	default:
		return sctpPacket{}, false
	}
}
