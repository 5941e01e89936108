package genl

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// TestPack: no send has more bytes or requests than fit, but one request at least;
// all are sent in order, and the last of each send asks for an answer.
func TestPack(t *testing.T) {
	var requests []Request
	for i := range 100 {
		f := frontend("10.96.0.1", uint16(i), service.TCP)
		requests = append(requests, NewService(Service{Frontend: f, Scheduler: "rr"}), DelService(f)) // 92 and 56 bytes
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
		s := &Socket{bounds: tt.bounds}
		sends, seen := 0, 0
		for rest := requests; len(rest) > 0; sends++ {
			n := s.pack(rest)
			count := 0
			for h := range headers(s.out) {
				count++
				if asks := h.flags&unix.NLM_F_ACK != 0; asks != (count == n) || h.seq != s.seq+uint32(count) {
					t.Fatalf("%+v: message %d of %d asks for an answer: %v, has number %d", tt.bounds, count, n, asks, h.seq)
				}
				if want := requests[seen].command; h.payload[0] != want {
					t.Fatalf("%+v: command %d, want %d", tt.bounds, h.payload[0], want)
				}
				seen++
			}
			if count != n || n > tt.bounds.requests || n > 1 && len(s.out) > tt.bounds.bytes {
				t.Fatalf("%+v: %d messages for %d requests in %d bytes", tt.bounds, count, n, len(s.out))
			}
			rest = rest[n:]
		}
		if sends != tt.sends || seen != len(requests) {
			t.Errorf("%+v: %d requests in %d sends, want %d", tt.bounds, seen, sends, tt.sends)
		}
	}
}
