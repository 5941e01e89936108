package nftables

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/service"
)

// keyText prints an element's key; a range is its prefix.
func keyText(d *dialect, s set, key string) (string, error) {
	if !s.ranges {
		return fieldsText(d, s.key, []byte(key))
	}
	half := len(key) / 2
	first, err := fieldsText(d, s.key, []byte(key[:half]))
	if err != nil {
		return "", err
	}
	last := []byte(key[half:])
	from, to := []byte(key[half-d.addrBytes:half]), last[len(last)-d.addrBytes:]
	bits := 0
	for bits < len(from)*8 && (from[bits/8]^to[bits/8])&(0x80>>(bits%8)) == 0 {
		bits++
	}
	if bits == len(from)*8 {
		return first, nil
	}
	return first + "/" + strconv.Itoa(bits), nil
}

// fieldsText prints a concatenation.
func fieldsText(d *dialect, fields []field, b []byte) (string, error) {
	if len(b) != keyBytes(d, fields) {
		return "", fmt.Errorf("%d bytes, want %d", len(b), keyBytes(d, fields))
	}
	var texts []string
	for _, f := range fields {
		part := b[:f.bytes(d)]
		b = b[len(part):]
		switch f {
		case fieldProtocol:
			texts = append(texts, protocolText(part[0]))
		case fieldPort:
			texts = append(texts, strconv.Itoa(int(binary.BigEndian.Uint16(part))))
		case fieldSlot:
			texts = append(texts, strconv.Itoa(int(binary.NativeEndian.Uint32(part))))
		default:
			addr, _ := netip.AddrFromSlice(part)
			texts = append(texts, addr.String())
		}
	}
	return strings.Join(texts, " . "), nil
}

func protocolText(number byte) string {
	for _, p := range []service.Protocol{service.TCP, service.UDP, service.SCTP} {
		if p.Number() == number {
			return p.String()
		}
	}
	return strconv.Itoa(int(number))
}
