// SPDX-License-Identifier: Apache-2.0

package service

import "net/netip"

// Family is an IP family. The two families are served by separate domains, so
// that a failure in one never blocks the other.
type Family uint8

// The two families, usable as indices of PerFamily.
const (
	IPv4 Family = iota
	IPv6
)

// Families lists both families in the order in which they are worked on.
var Families = [2]Family{IPv4, IPv6}

// String returns the API's spelling, "IPv4" or "IPv6" (core/v1 IPFamily).
func (f Family) String() string {
	if f == IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// Bits is the length of an address of the family.
func (f Family) Bits() int {
	if f == IPv6 {
		return 128
	}
	return 32
}

// FamilyOf returns the family of an address. IPv4-mapped IPv6 addresses count as
// IPv6 here; source unmaps addresses before they become values.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// PerFamily holds one T for each family; index it with a Family.
type PerFamily[T any] [2]T
