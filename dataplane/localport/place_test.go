package localport

import (
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

func TestObjectsAreReadBack(t *testing.T) {
	for _, p := range []place{
		{service.TCP, netip.MustParseAddrPort("127.0.0.1:30080")},
		{service.UDP, netip.MustParseAddrPort("[::1]:30053")},
	} {
		target := netip.AddrPortFrom(netip.MustParseAddr("2001:db8::10"), p.at.Port())
		o := object(p, target)
		if got, err := parsePlace(o.ID); err != nil || got != p {
			t.Errorf("%v is read back as %v, %v", o.ID, got, err)
		}
		if got, err := parseBody(o.Body); err != nil || got != target {
			t.Errorf("%q is read back as %v, %v", o.Body, got, err)
		}
	}
}

func TestObjectsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, name := range []string{"", "tcp", "tcp/", "tcp/127.0.0.1", "sctp/127.0.0.1:80", "tcp/localhost:80"} {
		if got, err := parsePlace(dataplane.ID{Container: container, Name: name}); err == nil {
			t.Errorf("name %q is read as %v", name, got)
		}
	}
	for _, text := range []string{"", "to ", "192.0.2.1:80", "to 192.0.2.1", "to web:80", "to 127.0.0.1:80", "to [::1]:80"} {
		if got, err := parseBody(text); err == nil {
			t.Errorf("content %q is read as %v", text, got)
		}
	}
}
