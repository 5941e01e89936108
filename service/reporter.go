// SPDX-License-Identifier: Apache-2.0

package service

import "net/netip"

// Reporter returns the node that reports what every node finds about a Service: the one that runs
// the endpoint with the lowest address, ready or not. All nodes with the same slices agree on it
// without asking each other. It is empty if no endpoint names a node.
func Reporter(slices []*Slice) (node string) {
	var lowest netip.Addr
	for _, s := range slices {
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			name := e.Where().NodeName
			if name == "" {
				continue
			}
			order := 0
			if node != "" {
				order = e.Addr.Compare(lowest)
			}
			if node == "" || order < 0 || order == 0 && name < node {
				lowest, node = e.Addr, name
			}
		}
	}
	return node
}
