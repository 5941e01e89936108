// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/netip"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/conntrack/account"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/service"
)

// TestPressure_Finding: the finding names the Services and clients with most entries, and never makes the node
// unhealthy.
func TestPressure_Finding(t *testing.T) {
	if found := pressureFindings(&account.Pressure{}); found != nil {
		t.Errorf("%+v", found)
	}
	since := time.Date(2026, 11, 27, 12, 30, 0, 0, time.UTC)
	p := account.Pressure{
		Usage: conntrack.Usage{Entries: 4012, Limit: 5000}, Since: since, Level: account.Filling,
		Holders: &traffic.Flows{
			Services: map[service.Key]traffic.ServiceFlows{
				{Namespace: "a", Name: "quiet"}: {}, {Namespace: "a", Name: "few"}: {Carried: traffic.Carried{Open: 12}},
				{Namespace: "shop", Name: "busy"}: {Carried: traffic.Carried{Open: 4000}},
			},
			Clients: []traffic.Ranked[netip.Addr]{{Key: netip.MustParseAddr("192.0.2.2"), Sum: 4003, Error: 3}, {Key: netip.MustParseAddr("fd00::2"), Sum: 9}},
		},
	}
	const usage, clients = "the connection table has 4012 of 5000 entries (80%)", "; clients with most entries: 192.0.2.2 (4000), fd00::2 (9)"
	for level, want := range map[account.Level]health.Finding{
		account.Filling:  {Kind: "conntrack-filling", Problem: usage + clients},
		account.Full:     {Kind: "conntrack-full", Problem: usage + clients},
		account.Dropping: {Kind: "conntrack-drops", Problem: usage + "; dropped 7 packets or connections at 12:31:00Z" + clients},
	} {
		p.Level, p.LastDrop, p.Drops = level, time.Time{}, 7
		if level == account.Dropping {
			p.LastDrop = since.Add(time.Minute)
		}
		found := pressureFindings(&p)
		if len(found) != 1 || found[0].Kind != want.Kind || found[0].Problem != want.Problem || found[0].Since != since || found[0].Unhealthy {
			t.Errorf("level %d: %+v", level, found)
			continue
		}
		if s := found[0].Services; len(s) != 2 || s[0].Service != "shop/busy" || s[0].Reason != "4000 entries" || s[1].Service != "a/few" {
			t.Errorf("level %d: %+v", level, s)
		}
	}
}

// TestPressure_Logged: pressure is logged when it begins and when it ends.
func TestPressure_Logged(t *testing.T) {
	core, logged := observer.New(zap.InfoLevel)
	r := &server{log: zap.New(core)}
	key := service.Key{Namespace: "shop", Name: "busy"}
	r.pressed(&account.Pressure{Level: account.Full, Usage: conntrack.Usage{Entries: 9}, Holders: &traffic.Flows{
		Services: map[service.Key]traffic.ServiceFlows{key: {Carried: traffic.Carried{Open: 5}}},
		Clients:  []traffic.Ranked[netip.Addr]{{Key: netip.MustParseAddr("192.0.2.2"), Sum: 9}},
	}})
	r.pressed(&account.Pressure{})
	all := logged.TakeAll()
	if len(all) != 2 || all[0].Level != zap.WarnLevel || all[1].Level != zap.InfoLevel {
		t.Fatalf("%+v", all)
	}
	if of := all[0].ContextMap(); of["finding"] != "conntrack-full" || of["clients"] != "192.0.2.2 (9)" || of["services"].([]any)[0] != "shop/busy (5)" {
		t.Errorf("%+v", of)
	}
}
