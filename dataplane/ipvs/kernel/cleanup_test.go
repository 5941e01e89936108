// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// TestCleanup_KnowsOwnServers: a cleanup recognizes its own virtual servers. Other programs may have virtual servers at
// the same ports or at the same addresses.
func TestCleanup_KnowsOwnServers(t *testing.T) {
	addr := netip.MustParseAddr
	f := &frontends{
		bound:  []netip.Addr{addr("10.0.0.1")},
		hosts:  []netip.Addr{addr("192.0.2.1"), addr("fd00::1")},
		served: map[service.Frontend]bool{},
	}
	for _, family := range service.Families {
		f.ports[family] = map[service.Frontend]bool{}
	}
	for _, set := range []wire.Set{
		{SetSpec: wire.SetSpec{Name: "KUBE-EXTERNAL-IP", Type: wire.HashIPPort}, Entries: []wire.Entry{{Addr: addr("192.0.2.1"), Protocol: wire.TCP, Port: 443}}},
		{SetSpec: wire.SetSpec{Name: render.SetName(service.IPv6, "NODE-PORT-SCTP"), Type: wire.HashIPPort}, Entries: []wire.Entry{{Addr: addr("fd00::1"), Protocol: wire.SCTP, Port: 30090}}},
		{SetSpec: wire.SetSpec{Name: "KUBE-NODE-PORT-TCP", Type: wire.BitmapPort}, Entries: []wire.Entry{{Port: 30080}}},
		{SetSpec: wire.SetSpec{Name: render.SetName(service.IPv6, render.SetNodePortUDP), Type: wire.BitmapPort}, Entries: []wire.Entry{{Port: 30053}}},
		{SetSpec: wire.SetSpec{Name: render.SetName(service.IPv4, "HEALTH-CHECK-PORT"), Type: wire.BitmapPort}, Entries: []wire.Entry{{Port: 32000}}},
	} {
		f.learnSet(&set)
	}
	for text, want := range map[string]bool{
		"tcp 10.0.0.1:80":      true,
		"udp 10.0.0.1:9":       true,
		"tcp 10.0.0.2:80":      false,
		"tcp 192.0.2.1:443":    true,
		"udp 192.0.2.1:443":    false,
		"tcp 192.0.2.1:80":     false,
		"tcp 192.0.2.1:30080":  true,
		"udp 192.0.2.1:30080":  false,
		"tcp 192.0.2.99:30080": false,
		"tcp [fd00::1]:30080":  false,
		"udp [fd00::1]:30053":  true,
		"sctp [fd00::1]:30090": true,
		"tcp 192.0.2.1:32000":  false,
	} {
		server, err := render.ParseServerID(dataplane.ID{Container: render.ContainerServer, Name: text})
		if err != nil {
			t.Fatal(err)
		}
		if got := f.ours(server); got != want {
			t.Errorf("%s: ours is %v, want %v", text, got, want)
		}
	}
}

// TestCleanup_OwnsSets: all rendered sets are ours, and sets with similar names are not.
func TestCleanup_OwnsSets(t *testing.T) {
	for _, family := range service.Families {
		for _, s := range render.Sets(family) {
			if !isOurs(s.Name) {
				t.Errorf("%s is not ours", s.Name)
			}
		}
	}
	for _, name := range []string{"KUBE-CLUSTER", "KUBE-CLUSTER-IP-MINE", "cluster", "KUBE-6", ""} {
		if isOurs(name) {
			t.Errorf("%q is ours", name)
		}
	}
}

// TestKernelCleanup_Nothing: a cleanup removes the rules even if nothing else exists, and returns their error.
func TestKernelCleanup_Nothing(t *testing.T) {
	namespace := netnstest.New(t, t.Name())
	for _, want := range []error{nil, errors.New("in the way")} {
		calls := 0
		err := namespace.Do(func() error {
			summary, err := Cleanup(t.Context(), false, func() error { calls++; return want })
			if summary.Any() {
				t.Errorf("removed %+v of nothing", summary)
			}
			return err
		})
		if !errors.Is(err, want) || calls != 1 {
			t.Errorf("got %v after %d calls, want %v after one", err, calls, want)
		}
	}
}
