package iptables

import (
	"os"
	"path/filepath"
	"testing"
)

func TestKernelSysctls(t *testing.T) {
	inNamespace(t, func() {
		for i, want := range []bool{true, false} {
			if changed, err := EnsureRouteLocalnet(); err != nil || changed != want {
				t.Errorf("call %d: changed = %v, %v; want %v", i, changed, err, want)
			}
		}
		if value, err := readSysctl(procSys, routeLocalnet); err != nil || value != "1" {
			t.Errorf("route_localnet is %q, %v", value, err)
		}
		if liberal, err := TCPBeLiberal(); err != nil || liberal {
			t.Errorf("a fresh namespace is liberal: %v, %v", liberal, err)
		}
		if err := os.WriteFile(filepath.Join(procSys, tcpBeLiberal), []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
		if liberal, err := TCPBeLiberal(); err != nil || !liberal {
			t.Errorf("after setting it: %v, %v", liberal, err)
		}
	})
}
