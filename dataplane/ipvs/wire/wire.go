// SPDX-License-Identifier: Apache-2.0

// Package wire communicates with the parts of the kernel that IPVS mode uses, in one network
// namespace: virtual servers, sets of addresses and ports, and the dummy device. It owns the
// sockets, the encoding and the interpretation of the kernel's answers. The writer and the
// cleanup of package kernel call it, and internal/daemon calls it to probe the kernel.
//
// Libraries read: github.com/moby/ipvs reads virtual servers with their counters, and
// github.com/vishvananda/netlink reads sets with their entries, the device and its addresses. The
// latter also changes the device, its addresses and whole sets. This package encodes changes of
// virtual servers itself, because one call of a library per request takes many times as long, and
// changes of set entries, because the library cannot write all of them: see
// docs/adr/0020-one-netlink-transport.md.
//
// Lists of changes return a result for each item. nil means that it was carried out, an error for
// which [Unknown] returns true means that the kernel's answer was lost, and any other error means
// that nothing changed. Repeating an item that was carried out does no harm.
//
// The facts about messages are those of include/uapi/linux/ip_vs.h,
// include/uapi/linux/netfilter/ipset and the code behind them in Linux 6.1.
package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"sync"
	"syscall"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// ErrUnanswered means that the kernel's answer was lost, so that the result is unknown. Close
// the socket, because a late answer could be taken for that of a later request.
var ErrUnanswered = netlink.ErrUnanswered

// NotSentError means that the kernel did not receive a request, so that nothing changed.
type NotSentError = netlink.NotSentError

// Unknown reports whether the result of a request is unknown.
func Unknown(err error) bool { return errors.Is(err, ErrUnanswered) }

// answerOf interprets the error of a library's call. An error number is the kernel's answer. With
// any other error, or if the receive buffer was too small (ENOBUFS) or the time over (EAGAIN), the
// answer was lost.
func answerOf(err error) error {
	errno, answered := errors.AsType[syscall.Errno](err)
	if err == nil || answered && errno != unix.ENOBUFS && errno != unix.EAGAIN {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnanswered, err)
}

// unsent returns a *NotSentError if the context has ended, otherwise nil.
func unsent(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &NotSentError{Err: err}
	}
	return nil
}

// quietLibraries discards the libraries' logs: moby/ipvs logs a warning if it cannot run modprobe,
// although the kernel has IPVS, and vishvananda/netlink prints each unknown attribute of other
// programs' sets to the standard logger, which Sluice does not use.
var quietLibraries = sync.OnceFunc(func() {
	logrus.SetOutput(io.Discard)
	log.SetOutput(io.Discard)
})
