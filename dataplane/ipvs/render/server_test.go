// SPDX-License-Identifier: Apache-2.0

package render

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

func TestParseServer_BodyRoundTrip(t *testing.T) {
	frontend := service.Frontend{Addr: netip.MustParseAddr("fd00::1"), Port: 53, Protocol: service.UDP}
	real1, real2 := netip.MustParseAddrPort("[fd00::a]:8080"), netip.MustParseAddrPort("[fd00::b]:8080")
	for body, server := range map[string]Server{
		"rr 0x0 0": {Service: wire.Service{Scheduler: "rr"}},
		"mh 0x11 10800\n[fd00::a]:8080 1\n[fd00::b]:8080 0": {
			Service: wire.Service{Scheduler: "mh", Flags: wire.Persistent | wire.SchedulerFlag2, Timeout: 10800},
			Reals:   []wire.Real{{Addr: real1, Weight: 1}, {Addr: real2}},
		},
		"rr 0x1 360 8\n[fd00::a]:8080 100": {
			Service: wire.Service{Scheduler: "rr", Flags: wire.Persistent, Timeout: 360, FreeBits: 8}, Reals: []wire.Real{{Addr: real1, Weight: 100}},
		},
		"rr 0x0 0\n[fd00::a]:8080 1\ndrain 30s\nkeeps [fd00::b]:8080": {
			Service: wire.Service{Scheduler: "rr"}, Reals: []wire.Real{{Addr: real1, Weight: 1}},
			Grace: Grace{Drain: service.Drain{Limited: true, After: 30 * time.Second}, Keeps: []netip.AddrPort{real2}},
		},
	} {
		server.Frontend = frontend
		o := server.Object()
		if o.Body != body || o.ID != ServerID(frontend) || o.Kind != dataplane.Element {
			t.Errorf("%+v: got %+v, want the body %q", server, o, body)
		}
		if got, err := ParseServer(&o); err != nil || !reflect.DeepEqual(got, server) {
			t.Errorf("%q: got %+v, %v", body, got, err)
		}
	}
}

// TestParseServer_InvalidBodies: ParseServer accepts only the one form that is printed.
func TestParseServer_InvalidBodies(t *testing.T) {
	id := dataplane.ID{Container: "server", Name: "tcp 10.0.0.1:80"}
	for _, body := range []string{
		"", "rr", "rr 0x0", " 0x0 0", "rr 0 0", "rr 0x00 0", "rr 0xG 0", "rr 0x0 -1", "rr 0x0 01", "rr 0x0 0 0", "rr 0x0 0 1 1",
		"rr 0x0 0\n", "rr 0x0 0\n10.0.0.2:80", "rr 0x0 0\n10.0.0.2 1", "rr 0x0 0\n10.0.0.2:80 x", "rr 0x0 0\n10.0.0.2:080 1",
		"rr 0x100000000 0", "rr 0x0 4294967296", "rr 0x0 0\ndrain", "rr 0x0 0\ndrain 30", "rr 0x0 0\ndrain 60s", "rr 0x0 0\nkeeps x",
		"rr 0x0 0\ndrain 1s\ndrain 1s", "rr 0x0 0\nkeeps 10.0.0.2:80\ndrain 1s", "rr 0x0 0\ndrain 1s\n10.0.0.2:80 1",
	} {
		if got, err := ParseServer(&dataplane.Object{ID: id, Body: body}); err == nil {
			t.Errorf("%q is taken for %+v", body, got)
		}
	}
	if got, err := ParseServer(&dataplane.Object{ID: DeviceID, Body: "rr 0x0 0"}); err == nil {
		t.Errorf("the device is taken for %+v", got)
	}
}

func FuzzParseServer(f *testing.F) {
	f.Add("tcp 10.0.0.1:80", "rr 0x1 10800\n10.0.0.2:8080 1")
	f.Add("udp 10.0.0.1:53", "rr 0x1 0\n10.0.0.2:8080 1\ndrain 5s\nkeeps 10.0.0.3:8080")
	f.Add("udp [fd00::1]:53", "mh 0x10 0 8\n[fd00::2%eth0]:53 0")
	f.Fuzz(func(t *testing.T, name, body string) {
		o := dataplane.Object{ID: dataplane.ID{Container: ContainerServer, Name: name}, Kind: dataplane.Element, Body: body}
		s, err := ParseServer(&o)
		if err != nil {
			return
		}
		if again := s.Object(); again.Body != body {
			t.Errorf("%q becomes %q", body, again.Body)
		}
	})
}
