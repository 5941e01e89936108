// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/sluice-proxy/sluice/service"
)

// Flow is the connection to explain.
type Flow struct {
	// From is the client; port 0 stands for any port.
	From netip.AddrPort
	// Interface is the interface through which the connection arrives; if empty, Explain guesses it.
	Interface string
	To        netip.AddrPort
	Protocol  service.Protocol
}

// ParseFlow parses a flow as people write it: from is an address with or without a port, and to an address and port
// with or without a protocol. An error contains the name of the flag.
func ParseFlow(from, to, iface string) (Flow, error) {
	q := Flow{Interface: iface}
	addr, err := netip.ParseAddr(from)
	if err == nil {
		q.From = netip.AddrPortFrom(addr.Unmap(), 0)
	} else if q.From, err = netip.ParseAddrPort(from); err != nil {
		return q, fmt.Errorf("--from %q: must be an address, such as 10.0.0.1, or an address and port", from)
	}
	place, name, _ := strings.Cut(to, "/")
	protocol, known := service.ParseProtocol(cmp.Or(strings.ToLower(name), "tcp"))
	q.Protocol = protocol
	if q.To, err = netip.ParseAddrPort(place); err != nil || !known {
		return q, fmt.Errorf("--to %q: must be an address and port, such as 10.96.0.10:53/udp or [fd00::1]:80", to)
	}
	return q, q.Check()
}

// Query returns the flow as parameters of a URL, and QuestionIn parses them.
func (q Flow) Query() url.Values {
	from := q.From.String()
	if q.From.Port() == 0 {
		from = q.From.Addr().String()
	}
	return url.Values{"from": {from}, "to": {q.To.String() + "/" + q.Protocol.String()}, "iface": {q.Interface}}
}

// QuestionIn is the reverse of Query.
func QuestionIn(query url.Values) (Flow, error) {
	return ParseFlow(query.Get("from"), query.Get("to"), query.Get("iface"))
}

// Check returns an error for an invalid flow.
func (q Flow) Check() error {
	switch {
	case !q.From.Addr().IsValid() || !q.To.IsValid():
		return errors.New("an address is missing")
	case q.From.Addr().Is4() != q.To.Addr().Is4():
		return fmt.Errorf("%s and %s are of different families", q.From.Addr(), q.To.Addr())
	case q.To.Port() == 0:
		return fmt.Errorf("%s lacks a port", q.To)
	}
	return nil
}
