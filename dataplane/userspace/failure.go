package userspace

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/service"
)

// openError says which object of which Service cannot be written.
type openError struct {
	owner service.Key
	// place is zero if the object could not be parsed.
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
	text := fmt.Sprintf("Service %s: cannot listen on %s: %v", e.owner, e.place, e.err)
	switch {
	case e.holder != "":
		return text + fmt.Sprintf(": %s; stop it, or give one of the two another port", e.holder)
	case errors.Is(e.err, unix.EADDRINUSE):
		return text + fmt.Sprintf("; another program of this host listens there or on all addresses "+
			"(find it with: ss --listening --processes --numeric --%s 'sport = :%d'): "+
			"stop it, or give one of the two another port", e.place.Protocol, e.place.At.Port())
	case errors.Is(e.err, unix.EACCES):
		return text + "; ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE"
	default:
		return text
	}
}

// Owner implements relay.OwnedError.
func (e *openError) Owner() service.Key { return e.owner }

// Unwrap returns the system's error.
func (e *openError) Unwrap() error { return e.err }

// boundError says that the process, or one Service, has as many listeners as it may.
type boundError struct {
	why  relay.Refusal
	most int
}

// Error says what to do.
func (e *boundError) Error() string {
	if e.why == relay.PartFull {
		return fmt.Sprintf("the Service has %d listeners, as many as one Service may have: "+
			"use fewer addresses or ports, or raise the limit of descriptors (LimitNOFILE), a quarter of whose listeners it may have", e.most)
	}
	return fmt.Sprintf("this process has %d listeners, as many as its limit of descriptors allows: raise it (LimitNOFILE)", e.most)
}

// rejectedError says which objects cannot be written.
type rejectedError struct {
	relay.RejectedError[*openError]
	// ids are those of the addresses and health check ports among them.
	ids []dataplane.ID
}
