// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

func newService(s Service) Request { return Request{Verb: NewService, Service: s} }
func setService(s Service) Request { return Request{Verb: SetService, Service: s} }

func delService(f service.Frontend) Request {
	return Request{Verb: DelService, Service: Service{Frontend: f}}
}

func newReal(f service.Frontend, addr netip.AddrPort, weight uint32) Request {
	return Request{Verb: NewReal, Service: Service{Frontend: f}, Real: Real{addr, weight}}
}

func setReal(f service.Frontend, addr netip.AddrPort, weight uint32) Request {
	return Request{Verb: SetReal, Service: Service{Frontend: f}, Real: Real{addr, weight}}
}

func delReal(f service.Frontend, addr netip.AddrPort) Request {
	return Request{Verb: DelReal, Service: Service{Frontend: f}, Real: Real{Addr: addr}}
}

func frontend(addr string, port uint16, protocol service.Protocol) service.Frontend {
	return service.Frontend{Addr: netip.MustParseAddr(addr), Port: port, Protocol: protocol}
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

// TestRequest_Bytes compares messages with their bytes on a little-endian machine, for family 0x1c and without a
// sequence number.
func TestRequest_Bytes(t *testing.T) {
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
		{"new service", newService(Service{Frontend: v4, Scheduler: "rr", Flags: Persistent, Timeout: 10800}), `
			5c000000 1c00 0100 00000000 00000000  01 01 0000
			4800 0100 ` + identity4 + `
			0700 0600 727200 00             # "rr"
			0c00 0700 01000000 ffffffff     # persistent, of all flags
			0800 0800 302a0000              # timeout
			0800 0900 ffffffff              # /32`},
		{"set service", setService(Service{Frontend: v6, Scheduler: "mh", Flags: SchedulerFlag2, FreeBits: 64}), `
			68000000 1c00 0100 00000000 00000000  02 01 0000
			5400 0100 ` + identity6 + `
			0700 0600 6d6800 00             # "mh"
			0c00 0700 10000000 ffffffff     # mh-port, of all flags
			0800 0800 00000000              # timeout
			0800 0900 40000000              # /64`},
		{"set service with an IPv4 mask", setService(Service{Frontend: v4, Scheduler: "rr", FreeBits: 8}), `
			5c000000 1c00 0100 00000000 00000000  02 01 0000
			4800 0100 ` + identity4 + `
			0700 0600 727200 00
			0c00 0700 00000000 ffffffff
			0800 0800 00000000
			0800 0900 ffffff00              # /24, in network byte order`},
		{"delete service", delService(v4), `
			38000000 1c00 0100 00000000 00000000  03 01 0000
			2400 0100 ` + identity4},
		{"new destination", newReal(v4, addr4, 1), `
			6c000000 1c00 0100 00000000 00000000  05 01 0000
			2400 0100 ` + identity4 + `
			3400 0200
			0800 0100 0a000002
			0600 0200 1f90 0000` + masquerading + `
			0800 0400 01000000              # weight` + unbounded},
		{"set destination", setReal(v6, addr6, 0), `
			84000000 1c00 0100 00000000 00000000  06 01 0000
			3000 0100 ` + identity6 + `
			4000 0200
			1400 0100 fd100000 00000000 00000000 00000002
			0600 0200 0035 0000` + masquerading + `
			0800 0400 00000000              # weight` + unbounded},
		{"delete destination", delReal(v4, addr4), `
			4c000000 1c00 0100 00000000 00000000  07 01 0000
			2400 0100 ` + identity4 + `
			1400 0200
			0800 0100 0a000002
			0600 0200 1f90 0000`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, want := tt.request.appendTo(nil, 0x1c), unhex(t, tt.want); string(got) != string(want) {
				t.Errorf("got\n%s\nwant\n%s", hex.Dump(got), hex.Dump(want))
			}
		})
	}
}

// TestRequest_Text: a request is printed as its verb and its servers.
func TestRequest_Text(t *testing.T) {
	f, addr := frontend("10.96.0.1", 80, service.TCP), netip.MustParseAddrPort("10.0.0.2:8080")
	for want, r := range map[string]Request{
		"add virtual server 10.96.0.1:80/tcp":                  newService(Service{Frontend: f}),
		"change virtual server 10.96.0.1:80/tcp":               setService(Service{Frontend: f}),
		"delete virtual server 10.96.0.1:80/tcp":               delService(f),
		"add real server 10.0.0.2:8080 of 10.96.0.1:80/tcp":    newReal(f, addr, 1),
		"change real server 10.0.0.2:8080 of 10.96.0.1:80/tcp": setReal(f, addr, 1),
		"delete real server 10.0.0.2:8080 of 10.96.0.1:80/tcp": delReal(f, addr),
	} {
		if got := r.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := (Request{}).String(); got != "nothing" {
		t.Errorf("the zero value asks for %q", got)
	}
}

// TestServerWriter_Pack: no send has more bytes or requests than fit, but each has at least one request. All are sent
// in order, and the last one of each send asks for an answer.
func TestServerWriter_Pack(t *testing.T) {
	var requests []Request
	for i := range 100 {
		f := frontend("10.96.0.1", uint16(i), service.TCP)
		requests = append(requests, newService(Service{Frontend: f, Scheduler: "rr"}), delService(f)) // 92 and 56 bytes
	}
	for _, tt := range []struct {
		bounds bounds
		sends  int
	}{
		{bounds{bytes: 1 << 20, requests: 1000}, 1},
		{bounds{bytes: 1 << 20, requests: 200}, 1},
		{bounds{bytes: 1 << 20, requests: 199}, 2},
		{bounds{bytes: 1 << 20, requests: 1}, 200},
		{bounds{bytes: 148, requests: 1000}, 100},
		{bounds{bytes: 147, requests: 1000}, 200},
		{bounds{bytes: 1, requests: 1000}, 200},
	} {
		w := &ServerWriter{bounds: tt.bounds}
		sends, seen := 0, 0
		for rest := requests; len(rest) > 0; sends++ {
			n := w.pack(rest)
			count := 0
			for m := range netlink.Messages(w.buf) {
				count++
				if asks := m.Flags&unix.NLM_F_ACK != 0; asks != (count == n) {
					t.Fatalf("%+v: message %d of %d asks for an answer: %v", tt.bounds, count, n, asks)
				}
				if want := requests[seen].Verb; Verb(m.Payload[0]) != want {
					t.Fatalf("%+v: command %d, want %d", tt.bounds, m.Payload[0], want)
				}
				seen++
			}
			if count != n || n > tt.bounds.requests || n > 1 && len(w.buf) > tt.bounds.bytes {
				t.Fatalf("%+v: %d messages for %d requests in %d bytes", tt.bounds, count, n, len(w.buf))
			}
			rest = rest[n:]
		}
		if sends != tt.sends || seen != len(requests) {
			t.Errorf("%+v: %d requests in %d sends, want %d", tt.bounds, seen, sends, tt.sends)
		}
	}
}

func TestRejection_Text(t *testing.T) {
	f, addr := frontend("10.96.0.1", 80, service.TCP), netip.MustParseAddrPort("10.0.0.2:8080")
	for _, tt := range []struct {
		rejection       Rejection
		want            string
		exists, missing bool
	}{
		{Rejection{newService(Service{Frontend: f}), unix.EEXIST, ""}, "add virtual server 10.96.0.1:80/tcp: it exists already", true, false},
		{Rejection{newService(Service{Frontend: f, Scheduler: "x"}), unix.ENOENT, ""}, `add virtual server 10.96.0.1:80/tcp: no scheduler "x" (kernel module ip_vs_x)`, false, false},
		{Rejection{delService(f), unix.ESRCH, ""}, "delete virtual server 10.96.0.1:80/tcp: no such virtual server", false, true},
		{Rejection{delReal(f, addr), unix.ENOENT, ""}, "delete real server 10.0.0.2:8080 of 10.96.0.1:80/tcp: no such real server", false, true},
		{Rejection{delReal(f, addr), unix.EPERM, "not you"}, "delete real server 10.0.0.2:8080 of 10.96.0.1:80/tcp: operation not permitted (not you)", false, false},
	} {
		err := error(&tt.rejection)
		if got := err.Error(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
		wrapped := fmt.Errorf("elsewhere: %w", err)
		if Exists(wrapped) != tt.exists || Missing(wrapped) != tt.missing || !errors.Is(wrapped, tt.rejection.Errno) {
			t.Errorf("%v: exists %v, missing %v", err, Exists(wrapped), Missing(wrapped))
		}
	}
}
