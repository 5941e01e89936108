package localport

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// Failure is something that went wrong while forwarding.
type Failure struct {
	// Listener names it, for example "tcp/127.0.0.1:30080".
	Listener string
	// Err is a *PanicError when forwarding panicked.
	Err error
}

// PanicError is the error of a goroutine that panicked.
type PanicError struct {
	Value any
	Stack []byte
}

// Error gives the panic's value.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap gives the panic's value if it was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// openError says for whom which listener cannot be opened.
type openError struct {
	owner service.Key
	place place
	err   error
	// holder says who has the port; empty when that is not known.
	holder string
}

// Error says what to do about it, where that is known.
func (e *openError) Error() string {
	if !e.place.at.IsValid() {
		return fmt.Sprintf("Service %s: %v", e.owner, e.err)
	}
	text := fmt.Sprintf("Service %s: node port %d/%s cannot answer on %s: %v",
		e.owner, e.place.at.Port(), e.place.protocol, e.place.at.Addr(), e.err)
	switch {
	case e.holder != "":
		return text + fmt.Sprintf(": %s; stop it, or give one of the two another port. At the node's other addresses the node port is served", e.holder)
	case errors.Is(e.err, unix.EADDRINUSE):
		return text + fmt.Sprintf("; another program of this host listens there or on all addresses (find it with: ss --listening --processes --numeric --%s 'sport = :%d'): "+
			"stop it, or give one of the two another port", e.place.protocol, e.place.at.Port())
	case errors.Is(e.err, unix.EACCES):
		return text + "; ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE: grant it, or give the Service another node port"
	case errors.Is(e.err, unix.EADDRNOTAVAIL), errors.Is(e.err, unix.EAFNOSUPPORT):
		return text + "; the address is not on this host: bring the loopback interface up (ip link set lo up), or switch the family on"
	default:
		return text
	}
}

// Unwrap gives the system's error.
func (e *openError) Unwrap() error { return e.err }

// nodesFault reports whether a listener cannot be opened for a reason that has
// nothing to do with its Service: there are no more descriptors or buffers, or
// the host has no loopback address.
func (e *openError) nodesFault() bool { return isOneOf(e.err, exhausted) || isOneOf(e.err, noLoopback) }

var (
	exhausted  = []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EAGAIN, unix.EINTR}
	noLoopback = []error{unix.EADDRNOTAVAIL, unix.EAFNOSUPPORT}
)

func isOneOf(err error, kinds []error) bool {
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// refusedError says that listeners cannot be opened, and that nothing was
// changed therefore.
type refusedError struct{ refusals []*openError }

// refusalsShown bounds the message.
const refusalsShown = 3

// Error gives the first reasons.
func (e *refusedError) Error() string {
	var texts []string
	for _, r := range e.refusals[:min(len(e.refusals), refusalsShown)] {
		texts = append(texts, r.Error())
	}
	if more := len(e.refusals) - refusalsShown; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// Unwrap gives the first reason.
func (e *refusedError) Unwrap() error { return e.refusals[0] }

// suspects are those whose listeners are meant.
func (e *refusedError) suspects() []service.Key {
	keys := make([]service.Key, len(e.refusals))
	for i, r := range e.refusals {
		keys[i] = r.owner
	}
	return keys
}
