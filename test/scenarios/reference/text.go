package reference

import (
	"net/netip"
	"strings"

	"github.com/sluice-proxy/sluice/service"
)

// address reads an address as leniently as the API once took it: octets with
// zeros in front are decimal, and IPv4 inside IPv6 is IPv4.
func address(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		octets := strings.Split(text, ".")
		for i, octet := range octets {
			if octets[i] = strings.TrimLeft(octet, "0"); octets[i] == "" && octet != "" {
				octets[i] = "0"
			}
		}
		a, err = netip.ParseAddr(strings.Join(octets, "."))
	}
	return a.Unmap(), err == nil && a.Zone() == ""
}

// prefix reads a range, and gives its network.
func prefix(text string) (netip.Prefix, bool) {
	host, length, _ := strings.Cut(strings.TrimSpace(text), "/")
	a, ok := address(host)
	if !ok {
		return netip.Prefix{}, false
	}
	p, err := netip.ParsePrefix(a.String() + "/" + length)
	return p.Masked(), err == nil
}

// prefixes gives the ranges of a family among texts.
func prefixes(texts []string, family service.Family) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		if p, ok := prefix(text); ok && service.FamilyOf(p.Addr()) == family {
			all = append(all, p)
		}
	}
	return all
}

// contains tells whether one of the ranges has an address.
func contains(ranges []netip.Prefix, a netip.Addr) bool {
	for _, r := range ranges {
		if r.Contains(a) {
			return true
		}
	}
	return false
}
