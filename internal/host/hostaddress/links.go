// SPDX-License-Identifier: Apache-2.0

package hostaddress

import (
	"cmp"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
)

// Link is a network device that routes packets.
type Link struct {
	Index int
	Name  string
}

// links reads the network devices, except for loopback devices and for members of a bridge, bond or VRF. The
// packets of members arrive at the master device.
type links struct{}

// passesOver implements source.
func (*links) passesOver(netlink.LinkUpdate) bool { return false }

// list implements source.
func (*links) list() ([]Link, error) {
	found, err := steadily(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("network devices: cannot list them: %w", err)
	}
	all := []Link{}
	for _, l := range found {
		if a := l.Attrs(); a.Flags&net.FlagLoopback == 0 && a.MasterIndex == 0 {
			all = append(all, Link{Index: a.Index, Name: a.Name})
		}
	}
	slices.SortFunc(all, func(a, b Link) int { return cmp.Compare(a.Index, b.Index) })
	return all, nil
}
