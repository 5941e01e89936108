// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/conntracktest"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestKernelTraffic_BytesOfConnections: totals are exactly the packets and bytes that the kernel counted for real
// packets.
func TestKernelTraffic_BytesOfConnections(t *testing.T) {
	const bytes = 20 + 8 + 1 // the headers of IPv4 and UDP, and the datagram
	node := conntracktest.NewNode(t)
	for _, setting := range []string{"acct", "timestamp"} {
		if err := node.Sysctl("net.netfilter.nf_conntrack_"+setting, "1"); err != nil {
			t.Fatal(err)
		}
	}
	sent := func(port uint16, times int) {
		t.Helper()
		for range times {
			if err := conntracktest.Send(node, port); err != nil {
				t.Fatal(err)
			}
		}
	}
	busy := service.Key{Namespace: "shop", Name: "busy"}
	watch := startTraffic(t, TrafficConfig{Service: dnsService, Exists: func(service.Key) bool { return true }, Continuous: true, Inside: node.Do, share: 1})
	sent(3000, 4) // before the first reading
	for i, step := range []struct {
		send, other          int
		open, packets, bytes uint64
	}{
		{0, 0, 1, 0, 0}, {2, 0, 1, 2, 2 * bytes}, {0, 3, 2, 5, 5 * bytes}, {1, 1, 2, 7, 7 * bytes},
	} {
		sent(3000, step.send)
		sent(3001, step.other)
		of := fresh(t, watch).Services[busy]
		if of.Open != step.open || of.PacketsIn != step.packets || of.BytesIn != step.bytes || of.BytesOut != 0 {
			t.Errorf("reading %d: %+v, want %+v", i, of, step)
		}
		if e := of.Endpoints[netip.MustParseAddrPort("10.0.2.2:5353")]; e != of.Carried {
			t.Errorf("reading %d: %+v", i, of.Endpoints)
		}
	}
	err := node.Do(func() error {
		list, _, err := conntrack.Connections(t.Context(), service.UDP, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 3000), netip.MustParseAddrPort("10.96.0.10:53"), 5)
		if len(list) != 1 || !list[0].Accounted || list[0].Carried.PacketsIn != 7 || list[0].Carried.BytesIn != 7*bytes || time.Since(list[0].Began) > testenv.Patience {
			t.Errorf("%+v", list)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := netnstest.FlushConntrack(node); err != nil {
		t.Fatal(err)
	}
	if of := fresh(t, watch).Services[busy]; of.Open != 0 || of.BytesIn != 7*bytes {
		t.Errorf("after the connections have ended: %+v", of)
	}
	same, err := watch.Flows(t.Context(), time.Minute)
	if again, _ := watch.Flows(t.Context(), time.Minute); err != nil || again != same {
		t.Errorf("read again for flows of a minute ago; %v", err)
	}
}

// fresh returns flows that were read after the call.
func fresh(t *testing.T, watch *Traffic) *traffic.Flows {
	t.Helper()
	for began := time.Now(); ; {
		f, err := watch.Flows(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if f.Began.After(began) {
			return f
		}
		if time.Since(began) > testenv.Patience {
			t.Fatalf("flows of %v", f.Began)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestTraffic_FlowsEndWithContext: Flows returns when its context ends, even if no reading runs.
func TestTraffic_FlowsEndWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := NewTraffic(TrafficConfig{Service: dnsService, Exists: func(service.Key) bool { return true }}).Flows(ctx, 0); err != context.Canceled {
		t.Error(err)
	}
}

// TestTraffic_ReadingsTakeFiftiethOfTime: readings take at most a fiftieth of the time, and a request does not make one
// begin earlier.
func TestTraffic_ReadingsTakeFiftiethOfTime(t *testing.T) {
	node := conntracktest.NewNode(t)
	conntracktest.Inject(t, node, crowdOf(500))
	watch := startTraffic(t, TrafficConfig{Service: dnsService, Exists: func(service.Key) bool { return true }, Inside: node.Do})
	first, err := watch.Flows(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	again, err := watch.Flows(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	next := again // on a busy machine, the pause may be over
	if again == first {
		next = fresh(t, watch)
	}
	if took, pause := first.Ended.Sub(first.Began), next.Began.Sub(first.Ended); pause < 40*took || next.Entries != 500 {
		t.Errorf("a reading of %v was followed by another one after %v", took, pause)
	}
}
