package genl

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// bounds are those of one send: the send buffer must hold the requests, and the
// receive buffer a refusal of each.
type bounds struct {
	bytes, requests int
}

// mostRequests is where larger sends no longer gain anything
// (docs/adr/0011-ipvs.md); between sends the context is looked at.
const mostRequests = 1024

// Do hands requests to the kernel, in few sends, and gives the outcome of each: nil
// when it was carried out; *Refusal or *NotSentError when it has changed nothing;
// any other error, ErrUnanswered in general, when that is unknown. The kernel
// carries them out in their order, whatever becomes of those before. When the
// context ends, what is not handed over yet is not.
func (s *Socket) Do(ctx context.Context, requests []Request) []error {
	outcomes := make([]error, len(requests))
	for from := 0; from < len(requests); {
		if err := ctx.Err(); err != nil {
			fill(outcomes[from:], &NotSentError{Err: err})
			return outcomes
		}
		n := s.pack(requests[from:])
		s.exchange(requests[from:from+n], outcomes[from:from+n])
		from += n
	}
	return outcomes
}

func fill(outcomes []error, err error) {
	for i := range outcomes {
		outcomes[i] = err
	}
}

// pack puts as many requests into the buffer as one send may have, and one at
// least. Only the last asks for an answer in any case: the kernel answers each that
// it refuses, and goes on.
func (s *Socket) pack(requests []Request) int {
	s.out = s.out[:0]
	n, last := 0, 0
	for n < min(len(requests), s.bounds.requests) {
		before := len(s.out)
		s.out = requests[n].appendTo(s.out, s.family, s.seq+uint32(n)+1)
		if n > 0 && len(s.out) > s.bounds.bytes {
			s.out = s.out[:before]
			break
		}
		last = before
		n++
	}
	demand(s.out[last:], unix.NLM_F_ACK)
	return n
}

// exchange sends what is packed and hears the answers.
func (s *Socket) exchange(requests []Request, outcomes []error) {
	first := s.seq + 1
	s.seq += uint32(len(requests))
	if err := s.send(s.out, len(requests)); err != nil {
		fill(outcomes, &NotSentError{Err: err})
		return
	}
	heard := make([]bool, len(requests))
	lost := s.hear(func(h header) {
		at := int(h.seq - first)
		a, ok := parseAnswer(h)
		if !ok || at >= len(requests) {
			return
		}
		heard[at] = true
		if a.errno != 0 {
			outcomes[at] = &Refusal{Request: requests[at], Errno: a.errno, Words: a.words}
		}
	})
	if lost == nil && heard[len(heard)-1] {
		return // all that were refused have been heard
	}
	unknown := ErrUnanswered
	if lost != nil {
		unknown = fmt.Errorf("%w: %w", ErrUnanswered, lost)
	}
	for i := range outcomes {
		if !heard[i] {
			outcomes[i] = unknown
		}
	}
}

// hear gives all NLMSG_ERROR messages that are ready, and says why some may be
// missing. Those that are here must be heard in any case, or they would be taken
// for answers to what comes next.
func (s *Socket) hear(each func(header)) (lost error) {
	for {
		datagram, err := s.receive()
		switch {
		case errors.Is(err, unix.EAGAIN):
			return lost
		case errors.Is(err, unix.ENOBUFS):
			lost = err
			continue
		case err != nil:
			return err
		}
		for h := range headers(datagram) {
			if h.kind == unix.NLMSG_ERROR {
				each(h)
			}
		}
	}
}
