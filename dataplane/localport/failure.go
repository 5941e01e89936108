package localport

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/relay"
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

// Owner implements relay.OwnedError.
func (e *openError) Owner() service.Key { return e.owner }

// Unwrap returns the system's error.
func (e *openError) Unwrap() error { return e.err }

// nodesFault reports whether the reason has nothing to do with the Service: the host has no more
// descriptors or buffers, or no loopback address.
func (e *openError) nodesFault() bool {
	return relay.Exhausted(e.err) || errors.Is(e.err, unix.EADDRNOTAVAIL) || errors.Is(e.err, unix.EAFNOSUPPORT)
}

// rejectedError says that listeners cannot be opened, and that nothing was changed for that reason.
type rejectedError = relay.RejectedError[*openError]
