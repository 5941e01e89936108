// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

// TestObserve: the stream continues until the client ends it, and begins only if there is no error.
func TestObserve(t *testing.T) {
	c := served(t, &stand{services: 1})
	q, err := ParseFlowQuery("10.0.0.7", []string{"refused", "dropped"})
	if err != nil {
		t.Fatal(err)
	}
	q.Namespace, q.Name = "ns0", "s00000"
	ctx, stop := context.WithCancel(t.Context())
	var got []string
	ready := false
	err = c.Observe(ctx, q, func() { ready = true }, func(e *FlowEvent) error {
		if got = append(got, string(e.Verdict)+" "+e.Namespace+"/"+e.Name+" "+e.Client.String()); len(got) == 2 {
			stop()
		}
		return nil
	})
	if want := "refused ns0/s00000 10.0.0.7:1000, dropped ns0/s00000 10.0.0.7:1000"; err != nil || !ready || strings.Join(got, ", ") != want {
		t.Errorf("%v, %q, want %q", err, got, want)
	}
	q.Name = "unknown"
	if err := c.Observe(t.Context(), q, func() { t.Error("ready") }, nil); err == nil || err.Error() != "no records" {
		t.Error(err)
	}
	for want, text := range map[string][2]string{`client "ten"`: {"ten", "closed"}, `verdict "lost"`: {"10.0.0.0/8", "lost"}} {
		if _, err := ParseFlowQuery(text[0], text[1:]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestFlowEvent_Print(t *testing.T) {
	at := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	f := traffic.Flow{
		Time: at, Verdict: traffic.Closed, Namespace: "shop", Name: "web", Protocol: "tcp", Client: netip.MustParseAddrPort("10.0.0.7:4000"),
		Frontend: netip.MustParseAddrPort("10.96.0.1:80"), Endpoint: netip.MustParseAddrPort("10.1.0.1:8080"), Start: at.Add(-2 * time.Second), End: at,
		Counted: true, BytesIn: 4096, BytesOut: 7,
	}
	refused := f
	refused.Verdict, refused.Reason, refused.Attempts, refused.Counted = traffic.Refused, "no-endpoints", 3, false
	refused.Endpoint, refused.End = netip.AddrPort{}, time.Time{}
	for _, c := range []struct {
		e    FlowEvent
		wide bool
		want string
	}{
		{FlowEvent{Flow: f}, true, "closed shop/web 10.0.0.7:4000 10.96.0.1:80/tcp 10.1.0.1:8080 4096 7 2s -"},
		{FlowEvent{Flow: f}, false, "closed shop/web 10.0.0.7:4000 10.96.0.1:80/tcp 10.1.0.1:8080 " + size(4096) + " " + size(7) + " 2s -"},
		{FlowEvent{Flow: refused}, false, "refused shop/web 10.0.0.7:4000 10.96.0.1:80/tcp - - - - no-endpoints (3 packets)"},
		{FlowEvent{Omitted: 5}, false, "or more records are missing"},
	} {
		b := terminal.Page{Wide: c.wide}
		c.e.Print(&b)
		if _, got, _ := strings.Cut(strings.Join(strings.Fields(b.String()), " "), " "); got != strings.Join(strings.Fields(c.want), " ") {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
