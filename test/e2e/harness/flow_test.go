package harness

import (
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// A flow keeps its port while the one who answers changes, and counts no answer to an earlier datagram.
func TestFlowKeepsItsPort(t *testing.T) {
	host := &Host{Namespace: newNamespace(t, "n")}
	target := Target{"udp", netip.MustParseAddrPort("127.0.0.1:5353")}
	flow, err := host.OpenFlow(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	defer flow.Close() //nolint:errcheck // nothing left to lose
	port := flow.conn.LocalAddr().String()
	if name, err := flow.Ask(); err == nil {
		t.Errorf("%s answered, want nobody", name)
	}
	for _, want := range []string{"one", "two"} {
		backend, err := netns.StartBackend(host.Namespace, want, target.Addr)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := flow.Ask(); err != nil || got != want {
				t.Errorf("%q answered, %v; want %s", got, err, want)
			}
		}
		// Nobody waits for the answer to this one.
		if _, err := flow.conn.Write([]byte("?")); err != nil {
			t.Error(err)
		}
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
	}
	if now := flow.conn.LocalAddr().String(); now != port {
		t.Errorf("the flow moved from %s to %s", port, now)
	}
	if _, err := host.OpenFlow(t.Context(), Target{"tcp", target.Addr}); err == nil {
		t.Error("a flow was opened over tcp")
	}
}
