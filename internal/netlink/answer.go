// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

var (
	// ErrUnanswered means that the kernel's answer was lost, so that the outcome of
	// the request is unknown.
	ErrUnanswered = errors.New("netlink: the kernel's answer was lost")
	// ErrInterrupted means that the list changed during the dump. The result may lack entries, and the list may never have
	// been in that state.
	ErrInterrupted = errors.New("netlink: the list changed while it was read")
)

// NotSentError means that the kernel did not take a request, so that nothing has
// changed.
type NotSentError struct{ Err error }

// Error returns the reason.
func (e *NotSentError) Error() string { return fmt.Sprintf("send to the kernel: %v", e.Err) }

// Unwrap returns the reason.
func (e *NotSentError) Unwrap() error { return e.Err }

// Busy reports whether the same request may succeed later.
func Busy(err error) bool {
	return slices.ContainsFunc([]error{unix.ENOBUFS, unix.ENOMEM, unix.EAGAIN, unix.EINTR}, func(busy error) bool { return errors.Is(err, busy) })
}

// Rejection is the kernel's answer to a request that it did not carry out.
type Rejection struct {
	Errno syscall.Errno
	// Text is the kernel's explanation, if it gave one.
	Text string
	// Offset is where in the request the rejected attribute begins; 0 if the kernel
	// did not say.
	Offset int
}

// Error returns the kernel's reason.
func (r *Rejection) Error() string {
	if r.Text == "" {
		return r.Errno.Error()
	}
	return r.Errno.Error() + " (" + r.Text + ")"
}

// Unwrap returns the error number.
func (r *Rejection) Unwrap() error { return r.Errno }

// Answer is what the kernel says about one request. Errno is 0 if the request was
// carried out.
type Answer struct {
	Rejection
	// Request is the part of the request's payload that the kernel repeats. It is valid until the callback returns.
	Request []byte
}

// Err returns the rejection, or nil if the request was carried out.
func (a *Answer) Err() error {
	if a.Errno == 0 {
		return nil
	}
	r := a.Rejection
	return &r
}

// The attributes of an extended acknowledgement (linux/netlink.h).
const (
	extendedText   = 1
	extendedOffset = 2
)

// errnoAt reads the error number at the beginning of NLMSG_ERROR and NLMSG_DONE. The
// kernel sends it as a negative number.
func errnoAt(payload []byte) syscall.Errno {
	if len(payload) < 4 {
		return 0
	}
	return syscall.Errno(max(-int32(binary.NativeEndian.Uint32(payload)), 0))
}

// ParseAnswer reads an NLMSG_ERROR message: the error number, the header of the
// request, the rest of the request unless it is left out, and attributes.
func ParseAnswer(m Message) (Answer, bool) {
	if m.Kind != unix.NLMSG_ERROR || len(m.Payload) < 4+HeaderBytes {
		return Answer{}, false
	}
	a := Answer{Rejection: Rejection{Errno: errnoAt(m.Payload)}}
	rest := m.Payload[4+HeaderBytes:]
	if m.Flags&unix.NLM_F_CAPPED == 0 && a.Errno != 0 {
		size := int(binary.NativeEndian.Uint32(m.Payload[4:])) - HeaderBytes
		if size < 0 || size > len(rest) {
			return a, true
		}
		a.Request = rest[:size]
		rest = rest[min(aligned(size), len(rest)):]
	}
	if m.Flags&unix.NLM_F_ACK_TLVS == 0 {
		return a, true
	}
	for attr := range Attrs(rest) {
		switch attr.Type {
		case extendedText:
			a.Text = attr.Text()
		case extendedOffset:
			a.Offset = int(attr.HostUint32())
		}
	}
	return a, true
}
