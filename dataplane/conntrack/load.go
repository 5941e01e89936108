// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

const messageStatistics = 4 // IPCTNL_MSG_CT_GET_STATS_CPU

// Load makes the kernel load connection tracking, if it is a module, by a request for statistics. On
// a node that has just booted, the module and its settings may be missing.
func Load(ctx context.Context) error { return load(ctx, unix.NETLINK_NETFILTER) }

func load(ctx context.Context, protocol int) error {
	socket, err := netlink.Open(netlink.Config{Protocol: protocol})
	if err != nil {
		return err
	}
	request, mark := netlink.BeginNetfilter(nil, unix.NFNL_SUBSYS_CTNETLINK, messageStatistics, unix.NLM_F_DUMP, unix.AF_UNSPEC)
	err = socket.Ask(ctx, netlink.Finish(request, mark), func(netlink.Message) error { return nil })
	return errors.Join(err, socket.Close())
}
