package dispatch

import (
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"strconv"

	"github.com/sluice-proxy/sluice/service"
)

// prefix is a set of keys: all those that share the first bits of one.
type prefix struct {
	key string
	// bits is how many bits of key count.
	bits int
}

// plainBits is the longest prefix that a chain's name shows in hexadecimal;
// longer ones are hashed.
const plainBits = 32

const hexDigits = "0123456789ABCDEF"

// appendChain appends the name of the chain that serves a prefix, at most 28
// bytes (XT_EXTENSION_MAXNAMELEN less its zero byte). The prefix KUBE-SVC- lets
// kube-proxy's sweep of stale chains take them away on the way back; a hyphen
// where those chains have none keeps the names apart.
//
//	KUBE-SVC-TS-AC1E0000-20         172.30.0.0/20 in the container of letter S
//	KUBE-SVC-TS-K4JXW6ZQ7L2MPO5A    a longer prefix
func (c Container) appendChain(b []byte, p prefix) []byte {
	b = append(b, "KUBE-SVC-T"...)
	b = append(b, c.Letter, '-')
	if p.bits > plainBits {
		return appendDigest(b, p)
	}
	var masked [plainBits / 8]byte
	n := p.masked(masked[:])
	for _, octet := range masked[:n] {
		b = append(b, hexDigits[octet>>4], hexDigits[octet&15])
	}
	b = append(b, '-')
	return strconv.AppendInt(b, int64(p.bits), 10)
}

// appendDigest appends 16 characters that stand for a prefix.
func appendDigest(b []byte, p prefix) []byte {
	var input [1 + 16 + transportBytes]byte
	input[0] = byte(p.bits)
	n := p.masked(input[1:])
	sum := sha256.Sum256(input[:1+n])
	return base32.StdEncoding.AppendEncode(b, sum[:10])
}

// masked fills b with the bytes of the key, bits beyond the prefix cleared, and
// gives how many there are.
func (p prefix) masked(b []byte) int {
	n := copy(b, p.key)
	for i := range n {
		switch keep := p.bits - i*8; {
		case keep <= 0:
			b[i] = 0
		case keep < 8:
			b[i] &= ^byte(0) << (8 - keep)
		}
	}
	return n
}

// appendMatches appends, for each rule that is needed to cover a prefix, the
// matches of that rule.
func (c Container) appendMatches(matches []string, family service.Family, p prefix) []string {
	var b [128]byte
	text := b[:0]
	addressBits := c.addressBits(family)
	if addressBits > 0 {
		text = c.appendAddress(text, p, addressBits)
	}
	if p.bits <= addressBits {
		return append(matches, string(text))
	}
	return appendTransportMatches(matches, text, p, addressBits)
}

func (c Container) appendAddress(text []byte, p prefix, addressBits int) []byte {
	var raw [16]byte
	copy(raw[:], p.key[:addressBits/8])
	addr := netip.AddrFrom16(raw)
	if addressBits == 32 {
		addr = netip.AddrFrom4([4]byte(raw[:4]))
	}
	flag := "-d "
	if c.Shape == BySource {
		flag = "-s "
	}
	return AppendPrefix(append(text, flag...), netip.PrefixFrom(addr, min(p.bits, addressBits)))
}

// appendTransportMatches covers a prefix that reaches into the protocol or the
// port, which begin at bit from: one rule for each protocol that a Service may
// name and the prefix allows. More than one is possible only while the prefix
// ends within the protocol.
func appendTransportMatches(matches []string, address []byte, p prefix, from int) []string {
	number := p.key[from/8]
	ports := max(p.bits-from-8, 0)
	low := uint16(p.key[from/8+1])<<8 | uint16(p.key[from/8+2])
	low &= ^uint16(0) << (16 - ports)
	high := low | ^uint16(0)>>ports
	for _, protocol := range protocols {
		if (protocol.Number()^number)>>max(8-(p.bits-from), 0) != 0 {
			continue
		}
		text := append([]byte(nil), address...)
		if len(text) > 0 {
			text = append(text, ' ')
		}
		text = append(append(text, "-p "...), protocol.String()...)
		if ports > 0 {
			text = append(append(text, " -m "...), protocol.String()...)
			text = append(text, " --dport "...)
			text = strconv.AppendUint(text, uint64(low), 10)
			if low != high {
				text = append(text, ':')
				text = strconv.AppendUint(text, uint64(high), 10)
			}
		}
		matches = append(matches, string(text))
	}
	return matches
}
