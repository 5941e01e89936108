// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"hash/maphash"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/service"
)

// parseAddr reads an IP address as leniently as API servers have accepted it: an
// octet with leading zeros is decimal, and an IPv4 address written as an IPv6
// one (::ffff:1.2.3.4) is IPv4. Addresses with a zone are rejected.
func parseAddr(text string) (netip.Addr, bool) {
	addr, ok := parseUnmapped(text)
	return addr.Unmap(), ok
}

// parsePrefix reads a CIDR as leniently as parseAddr and masks it to its
// network address.
func parsePrefix(text string) (netip.Prefix, bool) {
	host, length, found := strings.Cut(text, "/")
	addr, ok := parseUnmapped(host)
	bits, err := strconv.ParseUint(length, 10, 8)
	if !found || !ok || err != nil {
		return netip.Prefix{}, false
	}
	n := int(bits)
	if addr.Is4In6() {
		// The length counts from the start of the IPv6 spelling.
		addr, n = addr.Unmap(), n-96
	}
	prefix, err := addr.Prefix(n)
	return prefix, err == nil
}

func parseUnmapped(text string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		// Only leading zeros are forgiven, and they are rare.
		addr, err = netip.ParseAddr(withoutOctetZeros(text))
	}
	return addr, err == nil && addr.Zone() == ""
}

// withoutOctetZeros drops leading zeros from the dotted part of an address.
func withoutOctetZeros(text string) string {
	start := strings.LastIndexByte(text, ':') + 1
	octets := strings.Split(text[start:], ".")
	if len(octets) != 4 {
		return text
	}
	for i, octet := range octets {
		if trimmed := strings.TrimLeft(octet, "0"); trimmed != "" || octet == "" {
			octets[i] = trimmed
		} else {
			octets[i] = "0"
		}
	}
	return text[:start] + strings.Join(octets, ".")
}

// nameMax is the longest name that the API accepts for a namespace, a Service, a port or a label value, and
// longNameMax for other objects.
const (
	nameMax     = 63
	longNameMax = 253
)

// isName reports whether a name can be part of a rule. API servers admit less. After this check, no code needs to
// quote: a name has no space, quote or control character.
func isName(text string) bool { return isText(text, nameMax) }

// isText is isName for a name of up to most bytes.
func isText(text string, most int) bool {
	if text == "" || len(text) > most {
		return false
	}
	for i := range len(text) {
		c := text[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	return true
}

// nameOr returns an optional name, and an empty one with a warning if it is none.
func nameOr(n *notes, where path, text string, most int) string {
	if text == "" || isText(text, most) {
		return text
	}
	n.add(where, "it is ignored", notALongName, text, most)
	return ""
}

// notAName is the problem of a name for which isName is false, and notALongName of one for which isText is.
const (
	notAName     = "%q is not a name: 1 to 63 letters, digits, \"-\", \".\" or \"_\""
	notALongName = "%q is not a name: 1 to %d letters, digits, \"-\", \".\" or \"_\""
)

// each keeps values by their family, each once, in the order of their arrival.
type each[T comparable] struct {
	once service.PerFamily[[]T]
	// seen has what is in once, as soon as there are many: an object has room for a hundred
	// thousand addresses.
	seen map[T]bool
}

// searched is the length up to which a list is searched for a value.
const searched = 32

func (e *each[T]) add(family service.Family, value T) {
	list := e.once[family]
	if e.seen == nil && len(list) == searched {
		e.seen = make(map[T]bool)
		for _, known := range slices.Concat(e.once[:]...) {
			e.seen[known] = true
		}
	}
	if e.seen[value] || e.seen == nil && slices.Contains(list, value) {
		return
	}
	if e.seen != nil {
		e.seen[value] = true
	}
	e.once[family] = append(list, value)
}

const portMax = 1<<16 - 1

// portNumber reads a port number that must not be 0.
func portNumber(number int32) (uint16, bool) {
	if number < 1 || number > portMax {
		return 0, false
	}
	return uint16(number), true
}

// protocol reads a protocol. An empty one means TCP, as the API has it; objects
// from manifests have not been through the API server's defaulting.
func protocol(name corev1.Protocol) (service.Protocol, bool) {
	switch name {
	case corev1.ProtocolTCP, "":
		return service.TCP, true
	case corev1.ProtocolUDP:
		return service.UDP, true
	case corev1.ProtocolSCTP:
		return service.SCTP, true
	default:
		return 0, false
	}
}

// familyOf reads an IP family by its API name.
func familyOf[T ~string](name T) (service.Family, bool) {
	for _, family := range service.Families {
		if string(name) == family.String() {
			return family, true
		}
	}
	return 0, false
}

// internSlots bounds what intern remembers: one string per slot, 8 bytes for
// the slot itself. Names that fall into the same slot displace each other, which
// costs a copy and nothing else.
const internSlots = 1 << 14

// interned remembers the last string of each slot. Package unique forgets a
// string as soon as no handle is left, and the values here hold plain strings.
var interned [internSlots]atomic.Pointer[string]

var internSeed = maphash.MakeSeed()

// intern returns a string equal to s that is shared with earlier results and not
// with the API object. For strings that repeat: port and namespace names. A long string is
// copied only: what is remembered outlives the object. Safe for concurrent use.
func intern(s string) string {
	if s == "" || len(s) > longNameMax {
		return strings.Clone(s)
	}
	slot := &interned[maphash.String(internSeed, s)%internSlots]
	if known := slot.Load(); known != nil && *known == s {
		return *known
	}
	own := strings.Clone(s)
	slot.Store(&own)
	return own
}
