// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Direction is the sender and the destination of a flow's first packet, and whether the kernel translated the flow.
type Direction struct {
	From, To   netip.AddrPort
	Translated bool
}

// DeleteUDP deletes the UDP flows for which stale returns true, and returns how many it deleted. inside
// is Config.Inside.
func DeleteUDP(
	ctx context.Context, family service.Family, stale func(Direction) bool, inside func(func() error) error,
) (deleted int, err error) {
	n := &netfilter{family: family, inside: Config{Inside: inside}.withDefaults().Inside}
	defer func() { err = errors.Join(err, n.close()) }()
	for range listings {
		var found [][]byte
		_, err = n.flows(ctx, filter{destination: destination{protocol: protocolUDP}}, func(f *flow) error {
			if f.protocol == protocolUDP && stale(Direction{f.source, f.destination, f.translated()}) {
				found = append(found, append([]byte(nil), f.identity...))
			}
			return nil
		})
		for len(found) > 0 {
			part := found[:min(len(found), removeBatch)]
			found = found[len(part):]
			outcomes, removeErr := n.remove(part)
			if removeErr != nil {
				return deleted, fmt.Errorf("delete UDP flows of %s: %w", family, removeErr)
			}
			for _, outcome := range outcomes {
				if outcome == nil {
					deleted++
				}
			}
		}
		if !errors.Is(err, netlink.ErrInterrupted) && !errors.Is(err, netlink.ErrUnanswered) {
			break
		}
	}
	if err != nil {
		return deleted, fmt.Errorf("list flows of %s: %w", family, err)
	}
	return deleted, nil
}
