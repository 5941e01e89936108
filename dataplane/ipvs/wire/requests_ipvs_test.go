// SPDX-License-Identifier: Apache-2.0

//go:build ipvs

package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// serverWorld is a network namespace with our connections to its IPVS. The library is the
// judge of what our requests have made.
type serverWorld struct {
	testing.TB
	*Servers
	*ServerWriter
	judge *ipvs.Handle
	node  *netns.Namespace
	// reals has the totals of real servers at the last reading.
	reals map[traffic.Pair]traffic.Counts
	grown traffic.Grown[traffic.Pair]
	meter Meter
}

func newServerWorld(t testing.TB) *serverWorld {
	t.Helper()
	node, err := netns.New("node")
	if err != nil {
		t.Fatal(err)
	}
	w := &serverWorld{TB: t, node: node}
	err = node.Do(func() (err error) {
		if w.Servers, err = OpenServers(); err != nil {
			return err
		}
		w.ServerWriter, err = OpenServerWriter()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w.judge = w.handle
	t.Cleanup(func() {
		if err := errors.Join(w.Servers.Close(), w.ServerWriter.Close(), node.Close()); err != nil {
			t.Error(err)
		}
	})
	return w
}

// do expects all requests to be carried out.
func (w *serverWorld) do(requests ...Request) {
	w.Helper()
	for i, err := range w.Do(w.Context(), requests) {
		if err != nil {
			w.Fatalf("request %d of %d: %v", i, len(requests), err)
		}
	}
}

// rejected expects one request to be rejected, and returns the rejection.
func (w *serverWorld) rejected(request Request) error {
	w.Helper()
	err := w.Do(w.Context(), []Request{request})[0]
	var rejection *Rejection
	if !errors.As(err, &rejection) {
		w.Fatalf("%s: %v is not a rejection", request, err)
	}
	return err
}

// judged returns all that the kernel holds in the words of the judge: a line for each
// virtual server and for each real server behind it. The flags are the kernel's, with its
// own mark (2).
func (w *serverWorld) judged() []string {
	w.Helper()
	servers, err := w.judge.GetServices()
	if err != nil {
		w.Fatal(err)
	}
	var lines []string
	for _, s := range servers {
		line := fmt.Sprintf("%d %s %s flags %#x timeout %d mask %08x", s.Protocol,
			net.JoinHostPort(s.Address.String(), fmt.Sprint(s.Port)), s.SchedName, s.Flags, s.Timeout, s.Netmask)
		lines = append(lines, line)
		destinations, err := w.judge.GetDestinations(s)
		if err != nil {
			w.Fatal(err)
		}
		for _, d := range destinations {
			lines = append(lines, fmt.Sprintf("%s > %s weight %d forwarding %d", line,
				net.JoinHostPort(d.Address.String(), fmt.Sprint(d.Port)), d.Weight, d.ConnectionFlags))
		}
	}
	slices.Sort(lines)
	return lines
}

// expect compares what the kernel holds with lines as judged returns them.
func (w *serverWorld) expect(lines ...string) {
	w.Helper()
	if got := w.judged(); !slices.Equal(got, lines) {
		w.Errorf("the kernel holds\n%q\nexpected\n%q", got, lines)
	}
}

// many returns so many frontends of a family.
func many(family service.Family, count int) []service.Frontend {
	addr := netip.MustParseAddr("10.96.0.0")
	if family == service.IPv6 {
		addr = netip.MustParseAddr("fd96::")
	}
	frontends := make([]service.Frontend, count)
	for i := range frontends {
		addr = addr.Next()
		frontends[i] = service.Frontend{Addr: addr, Port: 80}
	}
	return frontends
}

// TestServerWriter_EveryRequest creates, changes and removes virtual and real servers of each family and protocol.
func TestServerWriter_EveryRequest(t *testing.T) {
	for _, tt := range []struct {
		name, addr, first, second, mask string
		protocol                        service.Protocol
		number                          string
	}{
		{"IPv4 TCP", "10.96.0.1", "10.0.0.1:8080", "10.0.0.2:8080", "ffffffff", service.TCP, "6"},
		{"IPv4 UDP", "10.96.0.1", "10.0.0.1:8080", "10.0.0.2:53", "ffffffff", service.UDP, "17"},
		{"IPv4 SCTP", "10.96.0.1", "10.0.0.1:8080", "10.0.0.2:8080", "ffffffff", service.SCTP, "132"},
		{"IPv6 TCP", "fd96::1", "[fd10::1]:8080", "[fd10::2]:8080", "00000080", service.TCP, "6"},
		{"IPv6 UDP", "fd96::1", "[fd10::1]:8080", "[fd10::2]:8080", "00000080", service.UDP, "17"},
		{"IPv6 SCTP", "fd96::1", "[fd10::1]:8080", "[fd10::2]:8080", "00000080", service.SCTP, "132"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newServerWorld(t)
			f := frontend(tt.addr, 80, tt.protocol)
			first, second := netip.MustParseAddrPort(tt.first), netip.MustParseAddrPort(tt.second)
			at := tt.number + " " + netip.AddrPortFrom(f.Addr, 80).String()

			w.do(newService(Service{Frontend: f, Scheduler: "rr"}), newReal(f, first, 1), newReal(f, second, 7))
			line := at + " rr flags 0x2 timeout 0 mask " + tt.mask
			w.expect(line, line+" > "+tt.first+" weight 1 forwarding 0", line+" > "+tt.second+" weight 7 forwarding 0")

			w.do(setService(Service{Frontend: f, Scheduler: "mh", Flags: Persistent | SchedulerFlag2, Timeout: 10800}), setReal(f, first, 0))
			line = at + " mh flags 0x13 timeout 10800 mask " + tt.mask
			w.expect(line, line+" > "+tt.first+" weight 0 forwarding 0", line+" > "+tt.second+" weight 7 forwarding 0")

			w.do(delReal(f, first))
			w.expect(line, line+" > "+tt.second+" weight 7 forwarding 0")
			w.do(delService(f))
			w.expect()
		})
	}
}

// TestServerWriter_Rejections: errors tell whether a server that was to be added exists, or one that was to be changed
// or removed does not.
func TestServerWriter_Rejections(t *testing.T) {
	w := newServerWorld(t)
	f, other := frontend("10.96.0.1", 80, service.TCP), frontend("10.96.0.2", 80, service.TCP)
	addr, another := netip.MustParseAddrPort("10.0.0.1:8080"), netip.MustParseAddrPort("10.0.0.2:8080")
	w.do(newService(Service{Frontend: f, Scheduler: "rr"}), newReal(f, addr, 1))
	for _, tt := range []struct {
		request         Request
		errno           error
		exists, missing bool
		words           string
	}{
		{newService(Service{Frontend: f, Scheduler: "rr"}), unix.EEXIST, true, false, "exists already"},
		{newReal(f, addr, 1), unix.EEXIST, true, false, "exists already"},
		{setService(Service{Frontend: other, Scheduler: "rr"}), unix.ESRCH, false, true, "no such virtual server"},
		{delService(other), unix.ESRCH, false, true, "no such virtual server"},
		{newReal(other, addr, 1), unix.ESRCH, false, true, "no such virtual server"},
		{setReal(f, another, 1), unix.ENOENT, false, true, "no such real server"},
		{delReal(f, another), unix.ENOENT, false, true, "no such real server"},
		{newService(Service{Frontend: other, Scheduler: "nonesuch"}), unix.ENOENT, false, false, `scheduler "nonesuch"`},
		{newService(Service{Frontend: frontend("fd96::1", 80, service.TCP), Scheduler: "rr", FreeBits: 128}), unix.EINVAL, false, false, "invalid"},
		{newService(Service{Scheduler: "rr"}), unix.EAFNOSUPPORT, false, false, "family"},
		{Request{}, unix.EOPNOTSUPP, false, false, "not supported"},
	} {
		err := w.rejected(tt.request)
		if !errors.Is(err, tt.errno) || Exists(err) != tt.exists || Missing(err) != tt.missing {
			t.Errorf("%s: got %v, exists %v, missing %v", tt.request, err, Exists(err), Missing(err))
		}
		if !strings.Contains(err.Error(), tt.words) || !strings.HasPrefix(err.Error(), tt.request.String()) {
			t.Errorf("%q does not say %q of %q", err, tt.words, tt.request)
		}
	}
	line := "6 10.96.0.1:80 rr flags 0x2 timeout 0 mask ffffffff"
	w.expect(line, line+" > 10.0.0.1:8080 weight 1 forwarding 0")
}

// TestServerWriter_ThousandsInOneCall: each of 10,000 requests in one call has its own outcome although every third is
// rejected, and they take few sends.
func TestServerWriter_ThousandsInOneCall(t *testing.T) {
	w := newServerWorld(t)
	const count = 10_000
	frontends := many(service.IPv4, count)
	var there, requests []Request
	for i, f := range frontends {
		request := newService(Service{Frontend: f, Scheduler: "rr"})
		if i%3 == 0 {
			there = append(there, request)
		}
		requests = append(requests, request)
	}
	w.do(there...)
	w.Written()
	for i, err := range w.Do(t.Context(), requests) {
		if want := i%3 == 0; Exists(err) != want || (err != nil) != want {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	written := w.Written()
	if written.Lines != count || written.Calls > 2+count/w.bounds.requests || written.Bytes < count*50 {
		t.Errorf("written: %+v with %+v", written, w.bounds)
	}
	if again := w.Written(); again.Calls != 0 {
		t.Errorf("counted twice: %+v", again)
	}
	if judged, err := w.judge.GetServices(); err != nil || len(judged) != count {
		t.Errorf("the kernel holds %d, %v", len(judged), err)
	}
}

// TestServerWriter_LostAnswers: if rejections do not fit into the receive buffer, the received ones are certain and all
// other outcomes unknown. The next call is not affected.
func TestServerWriter_LostAnswers(t *testing.T) {
	w := newServerWorld(t)
	err := w.node.Do(func() error {
		socket, err := netlink.Open(netlink.Config{Protocol: unix.NETLINK_GENERIC, SendBytes: sendBytes, ReceiveBytes: 8 << 10})
		if err == nil {
			err = w.socket.Close()
			w.socket = socket
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w.bounds.requests = 500
	var requests []Request
	for _, f := range many(service.IPv4, 500) {
		requests = append(requests, delService(f))
	}
	f := frontend("10.97.0.1", 80, service.TCP)
	requests[200] = newService(Service{Frontend: f, Scheduler: "rr"}) // carried out without an answer
	rejected, unknown := 0, 0
	for i, err := range w.Do(t.Context(), requests) {
		switch {
		case errors.Is(err, ErrUnanswered) && errors.Is(err, unix.ENOBUFS):
			unknown++
		case Missing(err) && i != 200:
			rejected++
		default:
			t.Fatalf("request %d: %v", i, err)
		}
	}
	if rejected == 0 || unknown == 0 {
		t.Errorf("%d rejected, %d unknown", rejected, unknown)
	}
	if _, err := w.Service(t.Context(), f); err != nil {
		t.Errorf("after lost answers: %v", err)
	}
	w.do(delService(f))
	w.expect()
}

// TestServers_EndedContext: nothing is sent after the context ended.
func TestServers_EndedContext(t *testing.T) {
	w := newServerWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := frontend("10.96.0.1", 80, service.TCP)
	var notSent *NotSentError
	err := w.Do(ctx, []Request{newService(Service{Frontend: f, Scheduler: "rr"})})[0]
	if !errors.As(err, &notSent) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := w.Services(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("services: %v", err)
	}
	w.expect()
}
