//go:build ipvs

package genl

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// TestEveryRequest makes, changes and removes virtual and real servers of each
// family and protocol; the judge says what is there.
func TestEveryRequest(t *testing.T) {
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
			w := newWorld(t)
			f := frontend(tt.addr, 80, tt.protocol)
			first, second := netip.MustParseAddrPort(tt.first), netip.MustParseAddrPort(tt.second)
			at := tt.number + " " + netip.AddrPortFrom(f.Addr, 80).String()

			w.do(NewService(Service{Frontend: f, Scheduler: "rr"}), NewDest(f, first, 1), NewDest(f, second, 7))
			line := at + " rr flags 0x2 timeout 0 mask " + tt.mask
			w.expect(line, line+" > "+tt.first+" weight 1 forwarding 0", line+" > "+tt.second+" weight 7 forwarding 0")

			w.do(SetService(Service{Frontend: f, Scheduler: "mh", Flags: Persistent | SchedulerFlag2, Timeout: 10800}), SetDest(f, first, 0))
			line = at + " mh flags 0x13 timeout 10800 mask " + tt.mask
			w.expect(line, line+" > "+tt.first+" weight 0 forwarding 0", line+" > "+tt.second+" weight 7 forwarding 0")

			w.do(DelDest(f, first))
			w.expect(line, line+" > "+tt.second+" weight 7 forwarding 0")
			w.do(DelService(f))
			w.expect()
		})
	}
}

// TestRefusals: what there is cannot be added, what there is not cannot be changed
// or removed, and the caller can tell.
func TestRefusals(t *testing.T) {
	w := newWorld(t)
	f, other := frontend("10.96.0.1", 80, service.TCP), frontend("10.96.0.2", 80, service.TCP)
	addr, another := netip.MustParseAddrPort("10.0.0.1:8080"), netip.MustParseAddrPort("10.0.0.2:8080")
	w.do(NewService(Service{Frontend: f, Scheduler: "rr"}), NewDest(f, addr, 1))
	for _, tt := range []struct {
		request         Request
		errno           error
		exists, missing bool
		words           string
	}{
		{NewService(Service{Frontend: f, Scheduler: "rr"}), unix.EEXIST, true, false, "exists already"},
		{NewDest(f, addr, 1), unix.EEXIST, true, false, "exists already"},
		{SetService(Service{Frontend: other, Scheduler: "rr"}), unix.ESRCH, false, true, "no such virtual server"},
		{DelService(other), unix.ESRCH, false, true, "no such virtual server"},
		{NewDest(other, addr, 1), unix.ESRCH, false, true, "no such virtual server"},
		{SetDest(f, another, 1), unix.ENOENT, false, true, "no such real server"},
		{DelDest(f, another), unix.ENOENT, false, true, "no such real server"},
		{NewService(Service{Frontend: other, Scheduler: "nonesuch"}), unix.ENOENT, false, false, `scheduler "nonesuch"`},
		{NewService(Service{Frontend: frontend("fd96::1", 80, service.TCP), Scheduler: "rr", FreeBits: 128}), unix.EINVAL, false, false, "invalid"},
		{NewService(Service{Scheduler: "rr"}), unix.EAFNOSUPPORT, false, false, "family"},
		{Request{}, unix.EOPNOTSUPP, false, false, "not supported"},
	} {
		err := w.refused(tt.request)
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

// TestThousandsInOneCall: of 10,000 requests every third is refused; each has its
// own outcome, and the sends are few.
func TestThousandsInOneCall(t *testing.T) {
	w := newWorld(t)
	const count = 10_000
	frontends := many(service.IPv4, count)
	var there, requests []Request
	for i, f := range frontends {
		request := NewService(Service{Frontend: f, Scheduler: "rr"})
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

// TestLostAnswers: where refusals do not fit into the receive buffer, those that
// were heard are certain, and all others unknown; the next call is as any other.
func TestLostAnswers(t *testing.T) {
	w := newWorld(t)
	if err := unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<10); err != nil {
		t.Fatal(err)
	}
	w.bounds.requests = 500
	var requests []Request
	for _, f := range many(service.IPv4, 500) {
		requests = append(requests, DelService(f))
	}
	f := frontend("10.97.0.1", 80, service.TCP)
	requests[200] = NewService(Service{Frontend: f, Scheduler: "rr"}) // carried out, and nobody says so
	refused, unknown := 0, 0
	for i, err := range w.Do(t.Context(), requests) {
		switch {
		case errors.Is(err, ErrUnanswered) && errors.Is(err, unix.ENOBUFS):
			unknown++
		case Missing(err) && i != 200:
			refused++
		default:
			t.Fatalf("request %d: %v", i, err)
		}
	}
	if refused == 0 || unknown == 0 {
		t.Errorf("%d refused, %d unknown", refused, unknown)
	}
	if _, err := w.Service(t.Context(), f); err != nil {
		t.Errorf("after lost answers: %v", err)
	}
	w.do(DelService(f))
	w.expect()
}

// TestLateAnswers: an answer that nobody has heard is not taken for one to the next
// exchange.
func TestLateAnswers(t *testing.T) {
	w := newWorld(t)
	s := Service{Frontend: frontend("10.96.0.1", 80, service.TCP), Scheduler: "rr"}
	w.do(NewService(s))
	leave := func() {
		n := uint32(w.pack([]Request{NewService(s), DelService(frontend("10.96.0.2", 80, service.TCP))}))
		w.seq += n
		if err := w.send(w.out, int(n)); err != nil {
			t.Fatal(err)
		}
	}
	leave()
	if got, err := w.Service(t.Context(), s.Frontend); err != nil || got != s {
		t.Errorf("got %+v, %v", got, err)
	}
	leave()
	w.do(SetService(s), SetService(s), DelService(s.Frontend))
	w.expect()
}

// TestEndedContext: nothing is handed over after its end.
func TestEndedContext(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := frontend("10.96.0.1", 80, service.TCP)
	var notSent *NotSentError
	err := w.Do(ctx, []Request{NewService(Service{Frontend: f, Scheduler: "rr"})})[0]
	if !errors.As(err, &notSent) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := w.Services(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("services: %v", err)
	}
	w.expect()
}

// TestTooLarge: what the kernel does not take has changed nothing.
func TestTooLarge(t *testing.T) {
	w := newWorld(t)
	var own *Socket
	if err := w.node.Do(func() (err error) { own, err = Open(); return err }); err != nil {
		t.Fatal(err)
	}
	own.bounds.bytes = 1 << 30
	if err := unix.SetsockoptInt(own.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<10); err != nil {
		t.Fatal(err)
	}
	var requests []Request
	for _, f := range many(service.IPv4, 500) {
		requests = append(requests, NewService(Service{Frontend: f, Scheduler: "rr"}))
	}
	var notSent *NotSentError
	for i, err := range own.Do(t.Context(), requests) {
		if !errors.As(err, &notSent) || !errors.Is(err, unix.EMSGSIZE) {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	if err := own.Close(); err != nil {
		t.Error(err)
	}
	w.expect()
}
