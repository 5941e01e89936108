package iptables

import (
	"testing"

	"github.com/sluice-proxy/sluice/internal/host/sysctl"
)

func TestKernelSysctls(t *testing.T) {
	inNamespace(t, func() {
		s := sysctl.Files{}
		for i, want := range []bool{true, false} {
			if changed, err := EnsureRouteLocalnet(s); err != nil || changed != want {
				t.Errorf("call %d: changed = %v, %v; want %v", i, changed, err, want)
			}
		}
		if value, err := s.Read(routeLocalnet); err != nil || value != "1" {
			t.Errorf("route_localnet is %q, %v", value, err)
		}
		if liberal, err := TCPBeLiberal(s); err != nil || liberal {
			t.Errorf("a fresh namespace is liberal: %v, %v", liberal, err)
		}
		if _, err := s.Ensure(tcpBeLiberal, "1", ""); err != nil {
			t.Fatal(err)
		}
		if liberal, err := TCPBeLiberal(s); err != nil || !liberal {
			t.Errorf("after setting it: %v, %v", liberal, err)
		}
	})
}
