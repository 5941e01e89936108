package genl

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

func frontend(addr string, port uint16, protocol service.Protocol) dataplane.Frontend {
	return dataplane.Frontend{Addr: netip.MustParseAddr(addr), Port: port, Protocol: protocol}
}

// unhex reads bytes written with spaces between them, and comments.
func unhex(t *testing.T, text string) []byte {
	t.Helper()
	var digits strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRequestBytes spells messages out, as a little-endian machine has them: to
// family 0x1c with sequence number 5.
func TestRequestBytes(t *testing.T) {
	v4, v6 := frontend("10.96.0.1", 80, service.TCP), frontend("fd96::1", 443, service.UDP)
	addr4, addr6 := netip.MustParseAddrPort("10.0.0.2:8080"), netip.MustParseAddrPort("[fd10::2]:53")
	const identity4 = `
		0600 0100 0200 0000     # AF_INET
		0600 0200 0600 0000     # TCP
		0800 0300 0a600001      # address
		0600 0400 0050 0000     # port
	`
	const identity6 = `
		0600 0100 0a00 0000     # AF_INET6
		0600 0200 1100 0000     # UDP
		1400 0300 fd960000 00000000 00000000 00000001
		0600 0400 01bb 0000     # port
	`
	const masquerading = `
		0800 0300 00000000      # masquerading
	`
	const unbounded = `
		0800 0500 00000000      # no upper threshold
		0800 0600 00000000      # no lower threshold
	`
	for _, tt := range []struct {
		name    string
		request Request
		want    string
	}{
		{"new service", NewService(Service{Frontend: v4, Scheduler: "rr", Flags: Persistent, Timeout: 10800}), `
			5c000000 1c00 0100 05000000 00000000  01 01 0000
			4800 0100 ` + identity4 + `
			0700 0600 727200 00             # "rr"
			0c00 0700 01000000 ffffffff     # persistent, of all flags
			0800 0800 302a0000              # timeout
			0800 0900 ffffffff              # /32`},
		{"set service", SetService(Service{Frontend: v6, Scheduler: "mh", Flags: SchedulerFlag2, FreeBits: 64}), `
			68000000 1c00 0100 05000000 00000000  02 01 0000
			5400 0100 ` + identity6 + `
			0700 0600 6d6800 00             # "mh"
			0c00 0700 10000000 ffffffff     # mh-port, of all flags
			0800 0800 00000000              # timeout
			0800 0900 40000000              # /64`},
		{"set service with an IPv4 mask", SetService(Service{Frontend: v4, Scheduler: "rr", FreeBits: 8}), `
			5c000000 1c00 0100 05000000 00000000  02 01 0000
			4800 0100 ` + identity4 + `
			0700 0600 727200 00
			0c00 0700 00000000 ffffffff
			0800 0800 00000000
			0800 0900 ffffff00              # /24, in network byte order`},
		{"delete service", DelService(v4), `
			38000000 1c00 0100 05000000 00000000  03 01 0000
			2400 0100 ` + identity4},
		{"new destination", NewDest(v4, addr4, 1), `
			6c000000 1c00 0100 05000000 00000000  05 01 0000
			2400 0100 ` + identity4 + `
			3400 0200
			0800 0100 0a000002
			0600 0200 1f90 0000` + masquerading + `
			0800 0400 01000000              # weight` + unbounded},
		{"set destination", SetDest(v6, addr6, 0), `
			84000000 1c00 0100 05000000 00000000  06 01 0000
			3000 0100 ` + identity6 + `
			4000 0200
			1400 0100 fd100000 00000000 00000000 00000002
			0600 0200 0035 0000` + masquerading + `
			0800 0400 00000000              # weight` + unbounded},
		{"delete destination", DelDest(v4, addr4), `
			4c000000 1c00 0100 05000000 00000000  07 01 0000
			2400 0100 ` + identity4 + `
			1400 0200
			0800 0100 0a000002
			0600 0200 1f90 0000`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, want := tt.request.appendTo(nil, 0x1c, 5), unhex(t, tt.want); string(got) != string(want) {
				t.Errorf("got\n%s\nwant\n%s", hex.Dump(got), hex.Dump(want))
			}
		})
	}
}

func TestRequestSaysWhatItAsksFor(t *testing.T) {
	f, addr := frontend("10.96.0.1", 80, service.TCP), netip.MustParseAddrPort("10.0.0.2:8080")
	for want, r := range map[string]Request{
		"add virtual server 10.96.0.1:80/tcp":                  NewService(Service{Frontend: f}),
		"change virtual server 10.96.0.1:80/tcp":               SetService(Service{Frontend: f}),
		"delete virtual server 10.96.0.1:80/tcp":               DelService(f),
		"add real server 10.0.0.2:8080 of 10.96.0.1:80/tcp":    NewDest(f, addr, 1),
		"change real server 10.0.0.2:8080 of 10.96.0.1:80/tcp": SetDest(f, addr, 1),
		"delete real server 10.0.0.2:8080 of 10.96.0.1:80/tcp": DelDest(f, addr),
	} {
		if got := r.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		gotAddr, isDest := r.Destination()
		if r.Frontend() != f || isDest != strings.Contains(want, "real") || isDest && gotAddr != addr {
			t.Errorf("%s is about %v, %v %v", want, r.Frontend(), gotAddr, isDest)
		}
	}
	if got := (Request{}).String(); got != "nothing" {
		t.Errorf("the zero value asks for %q", got)
	}
}
