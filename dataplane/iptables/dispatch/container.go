package dispatch

import (
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Shape says what the keys of a container's tree elements hold, and hence how
// its jumps match.
type Shape uint8

const (
	// ByDestination keys hold destination address, protocol and port.
	ByDestination Shape = iota
	// ByPort keys hold protocol and destination port.
	ByPort
	// BySource keys hold a source address.
	BySource
)

// Container is one dispatch chain and the tree of chains below it.
type Container struct {
	// Table is the iptables table, for example "nat".
	Table string
	// Chain is the name of the root chain, for example "KUBE-SERVICES".
	Chain string
	// Letter tells the container's chains from those of other containers in
	// their names.
	Letter byte
	Shape  Shape
}

// Name gives the Container part of the identity of this container's elements,
// for example "nat/KUBE-SERVICES".
func (c Container) Name() string { return c.Table + "/" + c.Chain }

// ID gives the identity of the container's root chain.
func (c Container) ID() dataplane.ID {
	return dataplane.ID{Container: c.Table, Name: c.Chain}
}

// addressBits is the number of key bits that hold an address.
func (c Container) addressBits(family service.Family) int {
	if c.Shape == ByPort {
		return 0
	}
	return family.Bits()
}

// keyBytes is the length of a tree key without its lane.
func (c Container) keyBytes(family service.Family) int {
	n := c.addressBits(family) / 8
	if c.Shape != BySource {
		n += transportBytes
	}
	return n
}
