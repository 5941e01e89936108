// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	ipvskernel "github.com/sluice-proxy/sluice/dataplane/ipvs/kernel"
	"github.com/sluice-proxy/sluice/service"
)

// TestIPVS_LogCutConnections: closed connections of draining endpoints are logged with the reason, and with a limited
// number of endpoints.
func TestIPVS_LogCutConnections(t *testing.T) {
	one := netip.MustParseAddrPort("10.0.0.1:80")
	for _, tt := range []struct {
		cut     ipvskernel.Cut
		message string
		named   int
		field   string
		value   any
	}{
		{
			ipvskernel.Cut{Endpoints: []netip.AddrPort{one}, Deadline: time.Minute},
			"drain deadline reached; closing remaining connections", 1, "deadline", time.Minute,
		},
		{
			ipvskernel.Cut{Endpoints: slices.Repeat([]netip.AddrPort{one}, 30), Bound: 1000},
			"too many draining endpoints; closing connections of the oldest", namedMax, "limit", int64(1000),
		},
	} {
		core, lines := observer.New(zapcore.DebugLevel)
		tt.cut.Service = service.Key{Namespace: "a", Name: "b"}
		cut(zap.New(core), "d", tt.cut)
		if lines.Len() != 1 || lines.All()[0].Message != tt.message || lines.All()[0].Level != zap.InfoLevel {
			t.Fatalf("%+v: got %v", tt.cut, lines.All())
		}
		got := lines.All()[0].ContextMap()
		named, _ := got["named"].([]any)
		if len(named) != tt.named || named[0] != "10.0.0.1:80" || got["endpoints"] != int64(len(tt.cut.Endpoints)) ||
			got[tt.field] != tt.value || got["service"] != "a/b" || got["domain"] != "d" {
			t.Errorf("%q: got %v", tt.message, got)
		}
	}
}
