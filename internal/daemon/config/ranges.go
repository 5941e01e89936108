package config

import (
	"fmt"
	"net/netip"
	"strings"

	netutils "k8s.io/utils/net"

	"github.com/sluice-proxy/sluice/service"
)

// parseRange reads a range of addresses as kube-proxy does: an octet may have
// leading zeros, and an IPv4 range may be written as an IPv6 one. What is behind
// the prefix is cut off.
func parseRange(text string) (netip.Prefix, bool) {
	_, network, err := netutils.ParseCIDRSloppy(strings.TrimSpace(text))
	if err != nil {
		return netip.Prefix{}, false
	}
	address, _ := netip.AddrFromSlice(network.IP) // four or sixteen bytes, being parsed
	bits, _ := network.Mask.Size()
	if address.Is4In6() && bits >= 96 {
		address, bits = address.Unmap(), bits-96
	}
	return netip.PrefixFrom(address, bits), true
}

// parseAddress reads an address likewise.
func parseAddress(text string) netip.Addr {
	address, _ := netip.AddrFromSlice(netutils.ParseIPSloppy(text)) // not valid for what is no address
	return address.Unmap()
}

// familyOf gives the family of a range that can be parsed.
func familyOf(text string) service.Family {
	r, _ := parseRange(text)
	return service.FamilyOf(r.Addr())
}

// clusterCIDRs gives the ranges of a setting that has been checked.
func clusterCIDRs(text string) (cidrs service.PerFamily[netip.Prefix]) {
	if text == "" {
		return cidrs
	}
	for part := range strings.SplitSeq(text, ",") {
		if r, ok := parseRange(part); ok {
			cidrs[service.FamilyOf(r.Addr())] = r
		}
	}
	return cidrs
}

// element is the path of one element of a list.
func element(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }
