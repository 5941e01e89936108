// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-proxy/sluice/service"
)

// ParsePlace is the reverse of [Place.String].
func ParsePlace(text string) (Place, error) {
	name, address, _ := strings.Cut(text, "/")
	protocol, known := service.ParseProtocol(name)
	if !known || protocol == service.SCTP {
		return Place{}, fmt.Errorf("%q: must be tcp or udp, and an address", text)
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		err = fmt.Errorf("%q: %w", text, err)
	}
	return Place{protocol, at}, err
}

// DeniedError means that a target must not be dialed (Config.MayDial).
type DeniedError struct {
	Target netip.AddrPort
	Err    error
}

// Error names the target.
func (e *DeniedError) Error() string { return fmt.Sprintf("dial %s: %v", e.Target, e.Err) }

// Unwrap returns the reason.
func (e *DeniedError) Unwrap() error { return e.Err }

// check returns an error if a target must not be dialed.
func (s *sockets) check(target netip.AddrPort) error {
	if err := s.mayDial(target.Addr().Unmap()); err != nil {
		return &DeniedError{target, err}
	}
	return nil
}
