// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestOffload_FollowsNode: the offload follows devices that appear and disappear while it runs. On a kernel that cannot
// offload, it reports the problem and ends.
func TestOffload_FollowsNode(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	core, logged := observer.New(zap.InfoLevel)
	o := &Offload{Mode: config.ModeNFTables, Log: zap.New(core)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	missing := Check()
	go func() { o.Run(ctx); close(ended) }()
	if missing != nil {
		<-ended
		now := o.State()
		if !strings.Contains(now.Problem, "the kernel cannot offload connections") || now.Devices != 0 || logged.FilterLevelExact(zap.WarnLevel).Len() != 1 {
			t.Errorf("without flowtables: %+v, %d log lines", now, logged.Len())
		}
		cancel()
		return
	}
	await := func(devices int) {
		t.Helper()
		for deadline := time.Now().Add(testenv.Patience); o.State().Devices != devices || o.State().Problem != ""; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%+v, want %d devices", o.State(), devices)
			}
		}
	}
	await(0)
	link(t, "add", "v1", "type", "veth", "peer", "name", "v2")
	await(2)
	link(t, "add", "br0", "type", "bridge")
	await(3)
	link(t, "set", "v1", "master", "br0")
	await(2)
	link(t, "set", "v2", "name", "v3")
	await(2)
	link(t, "del", "v3")
	await(1)
	cancel()
	<-ended
	if missing := Check(); missing != nil {
		t.Error(missing)
	}
	if n := logged.FilterLevelExact(zap.WarnLevel).Len(); n != 0 {
		t.Errorf("%d warnings", n)
	}
}

// link changes network devices.
func link(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", append([]string{"link"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("ip link %v: %v: %s (Debian package iproute2)", args, err, out)
	}
}
