// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"testing"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/observe/health"
)

// TestOffload_NotWorkingIsFinding: an offload that does not work is a finding, also in a mode that cannot offload.
func TestOffload_NotWorkingIsFinding(t *testing.T) {
	o := &Offload{Mode: config.ModeIPTables, Unable: true, Log: zap.NewNop()}
	if found := o.findings(); found != nil {
		t.Errorf("before it runs: found %+v", found)
	}
	o.Run(t.Context())
	found := o.findings()
	if len(found) != 1 || found[0].Kind != health.NotOffloaded || found[0].Unhealthy || found[0].Since.IsZero() ||
		found[0].Problem != "mode iptables cannot offload connections; nftables mode can" {
		t.Errorf("found %+v", found)
	}
}
