package play

import (
	"context"
	"errors"
	"slices"

	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// What a host firewall does with packets that no rule has decided about.
var _ = define("policy", verb{usage: "policy FORWARD DROP (table filter, by the proxy's variant of iptables)", kernel: true, parse: parsePolicy})

func parsePolicy(words []string) (statement, error) {
	if len(words) != 2 || !slices.Contains([]string{"INPUT", "FORWARD", "OUTPUT"}, words[0]) || !slices.Contains([]string{"ACCEPT", "DROP"}, words[1]) {
		return nil, errors.New("want INPUT, FORWARD or OUTPUT, and ACCEPT or DROP")
	}
	return settled(func(ctx context.Context, _ *Stage, w *network.World) error {
		return w.SetPolicy(ctx, words[0], words[1])
	}), nil
}
