package harness

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

func TestTrafficCountsWhatIsLost(t *testing.T) {
	host := &Host{Namespace: newNamespace(t, "n")}
	b, err := netns.StartBackend(host.Namespace, "b", netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	good, err := StartTraffic(t.Context(), host, targets(b.Addr())...)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * trafficEvery)
	if exchanges, err := good.Stop(); err != nil || exchanges < 6 {
		t.Errorf("traffic to a good backend: %d exchanges, %v", exchanges, err)
	}

	bad, err := StartTraffic(t.Context(), host, targets(b.Addr())...)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * trafficEvery)
	if _, err := bad.Stop(); err == nil || !strings.Contains(err.Error(), "exchanges failed") {
		t.Errorf("traffic to a backend that went away: %v", err)
	}

	if _, err := StartTraffic(t.Context(), host, targets(b.Addr())...); err == nil {
		t.Error("traffic started without a session")
	}
}
