// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestInEffect: a setting that the configuration omits has the value that applies.
func TestInEffect(t *testing.T) {
	c, _ := load(t, "--iptables-masquerade-bit=15", "--iptables-sync-period=10s", "--logging-format=json", "-v=4")
	pace := c.Pace(aggregator.Pace{})
	k, s := c.InEffect(ModeNFTables, pace)
	text, err := json.Marshal(map[string]any{"k": k, "s": s})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"mode":"nftables"`, `"nodePortAddresses":["0.0.0.0/0","::/0"]`,
		`"nftables":{"masqueradeBit":15,"masqueradeAll":false,"syncPeriod":"10s","minSyncPeriod":"0s"}`,
		`"log":{"level":"debug","format":"json"}`,
		`"nftables":{"localhostNodePorts":true,"offload":"off"}`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is missing in\n%s", want, text)
		}
	}
	if c.KubeProxy.Mode != ModeBest || *c.KubeProxy.NFTables.MasqueradeBit != 14 {
		t.Error("the configuration itself has changed")
	}

	c, _ = load(t, "--proxy-mode=iptables", "--iptables-min-sync-period=3s", testenv.Settings(t, "log: {level: warn}"))
	k, s = c.InEffect(ModeIPTables, c.Pace(aggregator.Pace{MaxWriteShare: 0.5}))
	if k.IPTables.MinSyncPeriod.Duration != 3*time.Second {
		t.Error(k.IPTables.MinSyncPeriod)
	}
	if s.Log != (LogConfiguration{"warn", "text"}) || *s.NFTables.LocalhostNodePorts {
		t.Errorf("%+v, localhost %v", s.Log, *s.NFTables.LocalhostNodePorts)
	}
}
