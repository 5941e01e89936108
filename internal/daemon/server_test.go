package daemon

import (
	"net/netip"
	"os"
	"testing"

	"k8s.io/kube-proxy/config/v1alpha1"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// TestAServerThatCannotBeMadeHoldsNothing: its backend has opened sockets by then, and a
// configuration file may bring the same error again and again.
func TestAServerThatCannotBeMadeHoldsNothing(t *testing.T) {
	node := netnstest.New(t, "node") // the mode changes sysctls
	o := parsed(t, "--proxy-mode=userspace", "--hostname-override=n1", "--sluice-state-dir="+t.TempDir())
	o.KubeProxy.DetectLocalMode = v1alpha1.LocalMode(proxy.DetectBridgeInterface) // and no bridge: the proxy rejects that
	log, err := newLogger(o.Log())
	check(t, err)
	check(t, node.Do(func() error { failToMakeServers(t, o, log); return nil }))
}

func failToMakeServers(t *testing.T, o *Options, log *logger) {
	t.Helper()
	p := &process{log: log, owner: claim(log.Logger), socket: newSocket(log.Logger), sockets: &relay.Sockets{},
		from: func(*Options) (*upstream, error) {
			return &upstream{feed: func(*server) proxy.Source { return nil }}, nil
		}}
	p.forwarders = &backend.Forwarders{Sockets: p.sockets}
	defer p.owner.lock.Release()
	descriptors := func() int {
		found, err := os.ReadDir("/proc/self/fd")
		check(t, err)
		return len(found)
	}
	before := 0
	for i := range 11 {
		if _, err := newServer(t.Context(), o, p); err == nil {
			t.Fatal("a server without a bridge was made")
		} else if i == 0 {
			t.Log(err)
			before = descriptors() // what stays for good is open now
		}
	}
	if err := p.forwarders.MayDial(netip.MustParseAddr("168.63.129.16")); err == nil {
		t.Error("a forwarder may connect to a platform address")
	}
	if after := descriptors(); after > before+2 {
		t.Errorf("%d descriptors after one failure, %d after eleven", before, after)
	}
}
