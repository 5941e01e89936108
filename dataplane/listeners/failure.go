// SPDX-License-Identifier: Apache-2.0

package listeners

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/internal/host/holder"
	"github.com/sluice-proxy/sluice/service"
)

// OpenError is the reason why an object of a Service was not written.
type OpenError struct {
	Owner service.Key
	// Place is zero unless a listener could not be opened there.
	Place relay.Place
	Err   error
	// holder describes the holder of the port; empty if unknown.
	holder string
}

// Error includes advice for known causes.
func (e *OpenError) Error() string {
	if !e.Place.At.IsValid() {
		return fmt.Sprintf("Service %s: %v", e.Owner, e.Err)
	}
	text := fmt.Sprintf("Service %s: cannot listen on %s: %v", e.Owner, e.Place, e.Err)
	switch {
	case e.holder != "":
		return text + fmt.Sprintf(": %s; stop it, or give one of the two another port", e.holder) + e.elsewhere()
	case errors.Is(e.Err, unix.EADDRINUSE):
		return text + fmt.Sprintf("; another program of this host listens there or on all addresses "+
			"(find it with: ss --listening --processes --numeric --%s 'sport = :%d'): "+
			"stop it, or give one of the two another port", e.Place.Protocol, e.Place.At.Port()) + e.elsewhere()
	case errors.Is(e.Err, unix.EACCES):
		return text + "; ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE: " +
			"grant it, or give the Service another port"
	case errors.Is(e.Err, unix.EADDRNOTAVAIL), errors.Is(e.Err, unix.EAFNOSUPPORT):
		return text + "; the address is not on this host: bring the loopback interface up " +
			"(ip link set lo up), or enable the IP family"
	default:
		return text
	}
}

// elsewhere adds that a node port on localhost works at its other addresses.
func (e *OpenError) elsewhere() string {
	if !e.Place.At.Addr().IsLoopback() {
		return ""
	}
	return ". The node port works at the node's other addresses"
}

// Unwrap returns the system's error.
func (e *OpenError) Unwrap() error { return e.Err }

// hostsFault reports whether the host is the cause and not the Service: it has no more descriptors or
// buffers, or no loopback address.
func (e *OpenError) hostsFault() bool {
	missing := errors.Is(e.Err, unix.EADDRNOTAVAIL) || errors.Is(e.Err, unix.EAFNOSUPPORT)
	return relay.Exhausted(e.Err) || missing && e.Place.At.Addr().IsLoopback()
}

// describeHolder describes the process that holds a port; empty if the port is free again. It uses the
// network namespace of the calling thread.
func describeHolder(p relay.Place) string {
	who, found := holder.Of(p.Protocol.String(), p.At)
	if !found {
		return ""
	}
	return fmt.Sprintf("port %d on %s is held by %s", p.At.Port(), p.At.Addr(), who)
}

// RejectedError lists the rejected objects.
type RejectedError struct{ Failures []*OpenError }

// failuresShown bounds the message.
const failuresShown = 3

// Error returns the first reasons.
func (e *RejectedError) Error() string {
	var texts []string
	for _, f := range e.Failures[:min(len(e.Failures), failuresShown)] {
		texts = append(texts, f.Error())
	}
	if more := len(e.Failures) - failuresShown; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the first reason.
func (e *RejectedError) Unwrap() error { return e.Failures[0] }

// suspects returns the owners of the objects.
func (e *RejectedError) suspects() []service.Key {
	keys := make([]service.Key, len(e.Failures))
	for i, f := range e.Failures {
		keys[i] = f.Owner
	}
	return keys
}
