// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/test/netnstest"
)

// TestTableListener_WholeFilterFits: the whole filter fits into 20 KiB, which Linux before 6.7 grants for the machine
// and not for a namespace.
func TestTableListener_WholeFilterFits(t *testing.T) {
	node := netnstest.New(t, "node")
	if err := node.Sysctl("net.core.optmem_max", "20480"); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	err := node.Do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		filter := foreign(unix.NFPROTO_IPV4, 1, messagesMax)
		return errors.Join(unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, filter), unix.Close(fd))
	})
	if err != nil {
		t.Errorf("%d messages do not fit: %v", messagesMax, err)
	}
}
