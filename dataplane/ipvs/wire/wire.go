// Package wire speaks to the parts of the kernel that IPVS mode uses, in one network
// namespace: virtual servers, sets of addresses and ports, and the dummy device. It owns
// the sockets, the encoding and the meaning of the kernel's answers. The writer
// and the cleanup of package kernel call it, and the assembly to probe the kernel.
//
// Libraries do what they can carry: github.com/moby/ipvs reads virtual servers and
// changes single ones, github.com/vishvananda/netlink has the device, its addresses and
// whole sets. Our own encoders are under the lists of requests that a batch consists of,
// where a request per call takes many times as long, and read what the libraries lose:
// see docs/adr/0020-one-netlink-transport.md.
//
// Lists of changes return a result for each item. nil means done, an error that
// [Unknown] reports means that the kernel's answer was lost, and any other error means
// that nothing changed. An item that exists already, or is gone already, may be repeated.
//
// The facts about messages are those of include/uapi/linux/ip_vs.h,
// include/uapi/linux/netfilter/ipset and the code behind them in Linux 6.1.
package wire

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// ErrUnanswered means that the kernel's answer was lost, so that the outcome is unknown.
// Close the socket: a late answer could be taken for another one.
var ErrUnanswered = netlink.ErrUnanswered

// NotSentError means that the kernel did not take a request, so that nothing changed.
type NotSentError = netlink.NotSentError

// Unknown reports whether an error leaves open what happened.
func Unknown(err error) bool { return errors.Is(err, ErrUnanswered) }

// answerOf interprets the error of a library's call. The kernel's answer is an error
// number; with any other error, and where the receive buffer or the time did not
// suffice, the answer was lost.
func answerOf(err error) error {
	errno, answered := errors.AsType[syscall.Errno](err)
	if err == nil || answered && errno != unix.ENOBUFS && errno != unix.EAGAIN {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnanswered, err)
}

// unsent returns a *NotSentError if the context has ended, and else nil.
func unsent(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &NotSentError{Err: err}
	}
	return nil
}
