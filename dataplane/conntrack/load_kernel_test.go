// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// TestKernelLoad: after Load, the settings of conntrack exist, also on a node that has just booted.
func TestKernelLoad(t *testing.T) {
	const setting = "/proc/sys/net/netfilter/nf_conntrack_max"
	_, err := os.Stat(setting)
	t.Logf("before: %v", err)
	if err := netnstest.New(t, "fresh").Do(func() error { return Load(t.Context()) }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(setting); err != nil {
		t.Error(err)
	}
}

// TestKernelLoad_NamesWhatIsMissing: Load returns an error that names the missing protocol, the kernel's rejection or
// the ended context.
func TestKernelLoad_NamesWhatIsMissing(t *testing.T) {
	const nobodys = 31 // the last number of a protocol, which no kernel uses
	err := load(t.Context(), nobodys)
	if want := "open a netlink socket: protocol not supported"; !errors.Is(err, unix.EPROTONOSUPPORT) || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
	// The kernel answers others with a refusal, which is no success.
	if refusal, ok := errors.AsType[*netlink.Rejection](load(t.Context(), unix.NETLINK_ROUTE)); !ok || refusal.Errno == 0 {
		t.Error("a kernel that refuses the request is taken for one that has loaded")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := load(ended, unix.NETLINK_NETFILTER); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context has ended: %v", err)
	}
}
