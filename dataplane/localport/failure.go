package localport

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/internal/host/holder"
	"github.com/sluice-proxy/sluice/service"
)

// Failure is something that went wrong while forwarding.
type Failure = relay.Failure

// openError says which listener of which Service cannot be opened.
type openError struct {
	owner service.Key
	place relay.Place
	err   error
	// holder says who holds the port, empty if that is not known.
	holder string
}

// Error says what to do, where that is known.
func (e *openError) Error() string {
	if !e.place.At.IsValid() {
		return fmt.Sprintf("Service %s: %v", e.owner, e.err)
	}
	text := fmt.Sprintf("Service %s: node port %d/%s cannot answer on %s: %v",
		e.owner, e.place.At.Port(), e.place.Protocol, e.place.At.Addr(), e.err)
	switch {
	case e.holder != "":
		return text + fmt.Sprintf(": %s; stop it, or give one of the two another port. "+
			"The node port works at the node's other addresses", e.holder)
	case errors.Is(e.err, unix.EADDRINUSE):
		return text + fmt.Sprintf("; another program of this host listens there or on all addresses "+
			"(find it with: ss --listening --processes --numeric --%s 'sport = :%d'): "+
			"stop it, or give one of the two another port", e.place.Protocol, e.place.At.Port())
	case errors.Is(e.err, unix.EACCES):
		return text + "; ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE: " +
			"grant it, or give the Service another node port"
	case errors.Is(e.err, unix.EADDRNOTAVAIL), errors.Is(e.err, unix.EAFNOSUPPORT):
		return text + "; this host does not have the address: bring the loopback interface up " +
			"(ip link set lo up), or enable the IP family"
	default:
		return text
	}
}

// Unwrap returns the system's error.
func (e *openError) Unwrap() error { return e.err }

// nodesFault reports whether the reason has nothing to do with the Service: the host has no more
// descriptors or buffers, or no loopback address.
func (e *openError) nodesFault() bool {
	return relay.Exhausted(e.err) || errors.Is(e.err, unix.EADDRNOTAVAIL) || errors.Is(e.err, unix.EAFNOSUPPORT)
}

// rejectedError says that listeners cannot be opened, and that nothing was changed for that reason.
type rejectedError struct{ failures []*openError }

// failuresShown bounds the message.
const failuresShown = 3

// Error returns the first reasons.
func (e *rejectedError) Error() string {
	var texts []string
	for _, f := range e.failures[:min(len(e.failures), failuresShown)] {
		texts = append(texts, f.Error())
	}
	if more := len(e.failures) - failuresShown; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the first reason.
func (e *rejectedError) Unwrap() error { return e.failures[0] }

// suspects returns the owners of the listeners.
func (e *rejectedError) suspects() []service.Key {
	keys := make([]service.Key, len(e.failures))
	for i, f := range e.failures {
		keys[i] = f.owner
	}
	return keys
}

// holderMax bounds the searches for the holder of a port in one batch: the writer does nothing else
// meanwhile.
const holderMax = 3

// describeHolder names the holder of a place's port, as far as this process can see it; empty if
// the port is free again. It looks at the network namespace of the calling thread.
func describeHolder(p relay.Place) string {
	who, found := holder.Of(p.Protocol.String(), p.At)
	if !found {
		return ""
	}
	return fmt.Sprintf("port %d on %s is held by %s", p.At.Port(), p.At.Addr(), who)
}
