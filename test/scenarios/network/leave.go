package network

import (
	"fmt"
	"net/netip"
)

// Leave ends who answers at an address since Serve. The address stays.
func (n *Network) Leave(at netip.AddrPort) error {
	for i, b := range n.backends {
		if b.Addr() == at {
			n.backends = append(n.backends[:i], n.backends[i+1:]...)
			return b.Close()
		}
	}
	return fmt.Errorf("nobody answers at %v", at)
}
