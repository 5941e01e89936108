// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestConntrackListener_Shared: the flow log and outlier detection share one listener of conntrack, so the kernel
// announces each connection once.
func TestConntrackListener_Shared(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	a := newAdaptive(t)
	a.describe("", 4)
	log := filepath.Join(t.TempDir(), "flows.log")
	client, stop := serveTested(t, a.dir, "--proxy-mode", "nftables",
		testenv.Settings(t, "balancing: {observeConnections: demo}\ntraffic: {flowLog: annotated, flowLogFile: "+log+"}"))
	defer stop()
	if got := connectionListeners(t); got != 0 {
		t.Errorf("%d sockets listen without need", got)
	}
	a.describe("sluice.dev/outlier: passive, sluice.dev/flow-log: \"true\"", 4)
	end := a.load()
	testenv.Eventually(t, "records of all endpoints", func() bool {
		text, _ := os.ReadFile(log)
		for i := range 4 {
			if !strings.Contains(string(text), endpointAt(i).String()) {
				return false
			}
		}
		return true
	})
	check(t, a.servers[3].Close())
	testenv.Eventually(t, "a suspect", func() bool { return len(a.suspects(client)) == 1 })
	if got := connectionListeners(t); got != 1 {
		t.Errorf("%d sockets listen to the kernel's announcements of connections", got)
	}
	end()
}

// connectionListeners counts the sockets of the network namespace that get announcements of connections.
func connectionListeners(t *testing.T) (count int) {
	t.Helper()
	text, err := os.ReadFile("/proc/net/netlink")
	check(t, err)
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line) // sk, protocol, port, groups
		groups, _ := strconv.ParseUint(fields[3], 16, 32)
		if fields[1] == strconv.Itoa(unix.NETLINK_NETFILTER) && groups&0x7 != 0 {
			count++
		}
	}
	return count
}
