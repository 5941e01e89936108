// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/netlink"
)

// Verb is the command of a request. The values are the kernel's (IPVS_CMD_…).
type Verb uint8

// The commands.
const (
	// NewService is rejected if the virtual server exists; see Exists.
	NewService Verb = 1
	// SetService changes all properties. Real servers and connections stay.
	SetService Verb = 2
	// DelService removes a virtual server with its real servers.
	DelService Verb = 3
	// NewReal is rejected if the real server exists (see Exists) or if the virtual
	// server does not (see Missing).
	NewReal Verb = 5
	// SetReal changes the weight, and the forwarding method to masquerading.
	SetReal Verb = 6
	DelReal Verb = 7
)

// aboutReal reports whether a request is about a real server.
func (v Verb) aboutReal() bool { return v >= NewReal }

// Request is one change of a virtual server or of one of its real servers. The kernel
// rejects the zero value.
type Request struct {
	Verb Verb
	// Service is the virtual server. Only NewService and SetService use more of it than
	// the frontend.
	Service Service
	// Real is used by NewReal, SetReal and DelReal.
	Real Real
}

// String describes the request.
func (r Request) String() string {
	verbs := map[Verb]string{
		NewService: "add virtual server ", NewReal: "add real server ",
		SetService: "change virtual server ", SetReal: "change real server ",
		DelService: "delete virtual server ", DelReal: "delete real server ",
	}
	text, ok := verbs[r.Verb]
	if !ok {
		return "nothing"
	}
	if r.Verb.aboutReal() {
		text += r.Real.Addr.String() + " of "
	}
	return text + r.Service.Frontend.String()
}

// Rejection is the kernel's answer to a request that it did not carry out.
type Rejection struct {
	Request Request
	Errno   syscall.Errno
	// Text is the kernel's explanation, if it gave one.
	Text string
}

// Error names the request and the reason.
func (r *Rejection) Error() string {
	reason := r.Errno.Error()
	switch {
	case Missing(r) && r.Errno == unix.ESRCH:
		reason = "no such virtual server"
	case Missing(r):
		reason = "no such real server"
	case r.Errno == unix.ENOENT:
		reason = fmt.Sprintf("no scheduler %q (kernel module ip_vs_%[1]s)", r.Request.Service.Scheduler)
	case Exists(r):
		reason = "it exists already"
	}
	text := fmt.Sprintf("%s: %s", r.Request, reason)
	if r.Text != "" {
		text += " (" + r.Text + ")"
	}
	return text
}

// Unwrap returns the error number.
func (r *Rejection) Unwrap() error { return r.Errno }

// Exists reports whether a request was rejected because the server that it adds exists already.
func Exists(err error) bool { return errors.Is(err, unix.EEXIST) }

// Missing reports whether a request failed because its virtual or real server does not exist.
func Missing(err error) bool { return errors.Is(err, unix.ESRCH) || MissingReal(err) }

// MissingReal reports whether a request failed because its real server does not exist.
func MissingReal(err error) bool {
	// For a request about a virtual server, ENOENT means that the scheduler is missing.
	r, ok := errors.AsType[*Rejection](err)
	return ok && r.Errno == unix.ENOENT && r.Request.Verb.aboutReal()
}

// ServerWriter sends lists of requests about virtual servers. It belongs to the network
// namespace of the thread that opened it. Only one goroutine at a time may use it. After the
// module ip_vs was unloaded and loaded again, open a new one.
type ServerWriter struct {
	socket *netlink.Socket
	family uint16
	bounds bounds
	buf    []byte
	// written counts since the last call of Written.
	written dataplane.Written
}

// bounds are the limits of one send: the requests must fit into the send buffer, and a rejection of
// each request into the receive buffer.
type bounds struct{ bytes, requests int }

const (
	// mostRequests limits a send: larger sends gain little (docs/adr/0020-one-netlink-transport.md),
	// and the context is checked only between sends.
	mostRequests = 1024
	// sendBytes is enough for mostRequests of the longest kind, because the kernel doubles it.
	sendBytes = 128 << 10
	// receiveBytes is enough for as many rejections of 2 KiB each, because the kernel doubles it.
	receiveBytes = mostRequests * 1024
)

// OpenServerWriter opens a socket in the network namespace of the calling thread. The
// error matches ErrUnavailable if the kernel has no IPVS.
func OpenServerWriter() (*ServerWriter, error) {
	family, err := lookUp(familyName)
	if err != nil {
		return nil, err
	}
	socket, err := netlink.Open(netlink.Config{
		Protocol: unix.NETLINK_GENERIC, SendBytes: sendBytes, ReceiveBytes: receiveBytes,
	})
	if err != nil {
		return nil, err
	}
	answers, err := socket.Answers()
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return &ServerWriter{
		socket: socket, family: family, bounds: bounds{socket.Room(), min(answers, mostRequests)},
	}, nil
}

// Close closes the socket.
func (w *ServerWriter) Close() error { return w.socket.Close() }

// Written returns the numbers of requests sent to the kernel since the last call: Lines are
// requests, Calls are sends.
func (w *ServerWriter) Written() dataplane.Written {
	written := w.written
	w.written = dataplane.Written{}
	return written
}

// Do sends requests to the kernel in few sends, and returns the result of each: nil if it was
// carried out; *Rejection or *NotSentError if it changed nothing; any other error, usually
// ErrUnanswered, if the result is unknown. The kernel carries out the requests in their order,
// regardless of the results of earlier ones. After the context ends, Do sends no more requests.
func (w *ServerWriter) Do(ctx context.Context, requests []Request) []error {
	outcomes := make([]error, len(requests))
	for from := 0; from < len(requests); {
		if err := unsent(ctx); err != nil {
			for i := from; i < len(outcomes); i++ {
				outcomes[i] = err
			}
			return outcomes
		}
		n := w.pack(requests[from:])
		w.exchange(requests[from:from+n], outcomes[from:from+n])
		from += n
	}
	return outcomes
}

// pack puts as many requests into the buffer as one send may have, but at least one. Only the
// last one requests an answer, because the kernel always answers those that it rejects.
func (w *ServerWriter) pack(requests []Request) int {
	w.buf = w.buf[:0]
	n, last := 0, 0
	for n < min(len(requests), w.bounds.requests) {
		before := len(w.buf)
		w.buf = requests[n].appendTo(w.buf, w.family)
		if n > 0 && len(w.buf) > w.bounds.bytes {
			w.buf = w.buf[:before]
			break
		}
		last = before
		n++
	}
	netlink.AddFlags(w.buf[last:], unix.NLM_F_ACK)
	return n
}

// exchange sends the packed requests and notes the answers. If answers may be missing, the results of
// all requests without one are unknown.
func (w *ServerWriter) exchange(requests []Request, outcomes []error) {
	heard := make([]bool, len(requests))
	err := w.socket.Exchange(w.buf, func(at int, a netlink.Answer) {
		heard[at] = true
		if a.Errno != 0 {
			outcomes[at] = &Rejection{Request: requests[at], Errno: a.Errno, Text: a.Text}
		}
	})
	if _, kept := errors.AsType[*NotSentError](err); !kept {
		w.written = w.written.Add(dataplane.Written{Lines: len(requests), Bytes: len(w.buf), Calls: 1})
	}
	for i := range outcomes {
		if err != nil && !heard[i] {
			outcomes[i] = err
		}
	}
}

// Attributes of the first level (IPVS_CMD_ATTR_…).
const (
	commandService     = 1
	commandDestination = 2
)

// Attributes of a virtual server (IPVS_SVC_ATTR_…).
const (
	serviceFamily    = 1
	serviceProtocol  = 2
	serviceAddress   = 3
	servicePort      = 4
	serviceScheduler = 6
	serviceFlags     = 7
	serviceTimeout   = 8
	serviceNetmask   = 9
)

// Attributes of a real server (IPVS_DEST_ATTR_…).
const (
	destinationAddress    = 1
	destinationPort       = 2
	destinationForwarding = 3
	destinationWeight     = 4
	destinationUpper      = 5
	destinationLower      = 6
)

// genericHeader returns the header that follows that of a message: command, version, and two
// unused bytes.
func genericHeader(command Verb) []byte { return []byte{byte(command), 1, 0, 0} }

// appendTo adds the message to a buffer. The kind is the number of the family.
func (r Request) appendTo(b []byte, kind uint16) []byte {
	b, mark := netlink.Begin(b, kind, 0)
	b = append(b, genericHeader(r.Verb)...)
	b = appendService(b, r.Service, r.Verb == NewService || r.Verb == SetService)
	if r.Verb.aboutReal() {
		b = appendReal(b, r.Real, r.Verb != DelReal)
	}
	return netlink.Finish(b, mark)
}

// appendService adds the attributes that identify a virtual server and, if full, all others. Unlike
// those of netfilter, numbers are in host byte order, except for ports.
func appendService(b []byte, s Service, full bool) []byte {
	b, mark := netlink.Nest(b, commandService)
	b = netlink.AppendHostUint16(b, serviceFamily, familyOf(s.Addr))
	b = netlink.AppendHostUint16(b, serviceProtocol, uint16(s.Protocol.Number()))
	b = netlink.AppendBytes(b, serviceAddress, s.Addr.AsSlice())
	b = netlink.AppendUint16(b, servicePort, s.Port)
	if full {
		const allFlags = ^uint32(0) // the mask of flags that the request sets
		b = netlink.AppendText(b, serviceScheduler, s.Scheduler)
		flags := binary.NativeEndian.AppendUint32(make([]byte, 0, 8), s.Flags)
		b = netlink.AppendBytes(b, serviceFlags, binary.NativeEndian.AppendUint32(flags, allFlags))
		b = netlink.AppendHostUint32(b, serviceTimeout, s.Timeout)
		b = netlink.AppendHostUint32(b, serviceNetmask, netmask(s))
	}
	return netlink.End(b, mark)
}

// appendReal adds the attributes that identify a real server and, if full, all others, without
// limits on the number of connections.
func appendReal(b []byte, r Real, full bool) []byte {
	b, mark := netlink.Nest(b, commandDestination)
	b = netlink.AppendBytes(b, destinationAddress, r.Addr.Addr().AsSlice())
	b = netlink.AppendUint16(b, destinationPort, r.Addr.Port())
	if full {
		b = netlink.AppendHostUint32(b, destinationForwarding, Masquerading)
		b = netlink.AppendHostUint32(b, destinationWeight, r.Weight)
		b = netlink.AppendHostUint32(b, destinationUpper, 0)
		b = netlink.AppendHostUint32(b, destinationLower, 0)
	}
	return netlink.End(b, mark)
}
