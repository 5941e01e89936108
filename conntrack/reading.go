package conntrack

import (
	"errors"

	"golang.org/x/sys/unix"
)

// reading is one listing while it arrives.
type reading struct {
	*socket
	only     filter
	each     func(*flow) error
	honoured bool
	done     bool
	// interrupted is set once the kernel has said that the table was changed in
	// a way that may have hidden flows.
	interrupted bool
	// flow is the one that is handed over, here to make one do for all.
	flow flow
}

// next takes one datagram.
func (r *reading) next() error {
	datagram, err := r.receive()
	if errors.Is(err, unix.ENOBUFS) {
		return errInterrupted
	}
	if err != nil {
		return err
	}
	for m := range messages(datagram) {
		if m.sequence != r.sequence {
			continue
		}
		if err := r.take(m); err != nil {
			return err
		}
	}
	if r.done && r.interrupted {
		return errInterrupted
	}
	return nil
}

func (r *reading) take(m message) error {
	r.interrupted = r.interrupted || m.flags&unix.NLM_F_DUMP_INTR != 0
	switch {
	case m.kind == unix.NLMSG_DONE || m.kind == unix.NLMSG_ERROR:
		r.done = true
		if err := m.failure(); errors.Is(err, unix.EINTR) {
			r.interrupted = true
		} else if err != nil {
			return err
		}
		return nil
	case m.kind>>8 != unix.NFNL_SUBSYS_CTNETLINK || len(m.payload) < genericHeader:
		return nil
	}
	var ok bool
	if r.flow, ok = parseFlow(m.payload[genericHeader:]); !ok {
		r.honoured = false
		return nil
	}
	r.honoured = r.honoured && r.only.matches(r.flow.destination)
	return r.each(&r.flow)
}
