package genl

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Refusal is the kernel's no to one request, which has changed nothing.
type Refusal struct {
	Request Request
	Errno   syscall.Errno
	// Words are the kernel's own, if it gave some.
	Words string
}

// Error gives the request and the kernel's reason.
func (r *Refusal) Error() string {
	reason := r.Errno.Error()
	switch {
	case Missing(r) && r.Errno == unix.ESRCH:
		reason = "no such virtual server"
	case Missing(r):
		reason = "no such real server"
	case r.Errno == unix.ENOENT:
		reason = fmt.Sprintf("no scheduler %q (kernel module ip_vs_%[1]s)", r.Request.service.Scheduler)
	case Exists(r):
		reason = "it exists already"
	}
	text := fmt.Sprintf("%s: %s", r.Request, reason)
	if r.Words != "" {
		text += " (" + r.Words + ")"
	}
	return text
}

// Unwrap gives the error number.
func (r *Refusal) Unwrap() error { return r.Errno }

// NotSentError says that a request was not handed over, so that it has changed
// nothing.
type NotSentError struct{ Err error }

// Error gives the reason.
func (e *NotSentError) Error() string { return fmt.Sprintf("not handed to the kernel: %v", e.Err) }

// Unwrap gives the reason, such as context.Canceled.
func (e *NotSentError) Unwrap() error { return e.Err }

// ErrUnanswered says that the kernel's answer was lost: whether the request was
// carried out is unknown. It takes a receive buffer that is too small or a kernel
// without memory; a socket on which a list ended so may not give another list
// (EBUSY), and should be given up.
var ErrUnanswered = errors.New("netlink: the kernel's answer was lost")

// Exists says that a request was refused because what it would have added is there.
func Exists(err error) bool { return errors.Is(err, unix.EEXIST) }

// Missing says that something failed because the virtual or the real server that it
// is about is not there.
func Missing(err error) bool {
	var r *Refusal
	if errors.As(err, &r) && r.Errno == unix.ENOENT {
		// About a virtual server it means that the scheduler is missing.
		return r.Request.command >= newDestination
	}
	return errors.Is(err, unix.ESRCH)
}
