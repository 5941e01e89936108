package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Untranslate deletes the UDP flows to destinations that nothing translates any more, and returns
// how many there were: their clients would stay with endpoints that a former proxy has chosen.
// inside is that of Config.
func Untranslate(
	ctx context.Context, family service.Family, destination func(netip.AddrPort) bool, inside func(func() error) error,
) (deleted int, err error) {
	n := &netfilter{family: family, inside: Config{Inside: inside}.withDefaults().Inside}
	defer func() { err = errors.Join(err, n.close()) }()
	for range listings {
		var stale [][]byte
		_, err = n.flows(ctx, filter{protocol: protocolUDP}, func(f *flow) error {
			if f.protocol == protocolUDP && f.translated() && destination(f.destination) {
				stale = append(stale, append([]byte(nil), f.identity...))
			}
			return nil
		})
		for len(stale) > 0 {
			part := stale[:min(len(stale), removeBatch)]
			stale = stale[len(part):]
			outcomes, removeErr := n.remove(part)
			if removeErr != nil {
				return deleted, fmt.Errorf("delete translated flows of %s: %w", family, removeErr)
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
