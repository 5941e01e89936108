// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"net/netip"
)

// AddressPolicy says which addresses traffic must not be forwarded to, and which must not be served for
// a Service besides its ClusterIPs. It is the second check behind that of the API server, which does
// not check the addresses of load balancers. The zero value denies special addresses only. It must
// not be changed while it is in use.
type AddressPolicy struct {
	// Denied are further ranges: metadata servers of cloud platforms, for example.
	Denied []netip.Prefix
}

// Check returns why an address must not be used, as an error that names the address; nil if it may. It
// keeps nothing, so a forwarder may use it as a hook before it connects.
func (p AddressPolicy) Check(addr netip.Addr) error {
	addr = addr.Unmap()
	special := ""
	switch {
	case addr.IsUnspecified():
		special = "the unspecified address"
	case addr.IsLoopback():
		special = "a loopback address"
	case addr.IsLinkLocalUnicast():
		special = "a link-local address"
	case addr.IsMulticast():
		special = "a multicast address"
	}
	if special != "" {
		return fmt.Errorf("%v must not be %s", addr, special)
	}
	for _, denied := range p.Denied {
		if denied.Contains(addr) {
			return fmt.Errorf("%v must not be in %v, which addresses.denied contains", addr, denied)
		}
	}
	return nil
}
