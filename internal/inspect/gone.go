// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// GoneQuery asks whether the rules of a node send new connections to an endpoint.
type GoneQuery struct {
	// At is the endpoint. Port 0 stands for all ports of the address.
	At netip.AddrPort
	// Wait is how long the answer may wait until the endpoint is gone.
	Wait time.Duration
}

// GoneWaitMax bounds GoneQuery.Wait.
const GoneWaitMax = 30 * time.Second

// PathEndpoint begins the path at which health servers answer a GoneQuery; the rest of the path is the endpoint.
const PathEndpoint = "/endpoints/"

// GoneSearchTime is how long an answer may take in addition to GoneQuery.Wait.
const GoneSearchTime = 30 * time.Second

// Gone is the answer to a GoneQuery.
type Gone struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Endpoint   string `json:"endpoint"`
	Gone       bool   `json:"gone"`
	// At is the time for which the answer holds.
	At time.Time `json:"at"`
	// Reason says why it is not known whether the endpoint is gone. It is a fixed text, because every client may see it.
	Reason string `json:"reason,omitempty"`
	// Services are those that send new connections to the endpoint. More is set if the list is incomplete. An answer over
	// the network contains neither.
	Services []Sender `json:"services,omitempty"`
	More     bool     `json:"more,omitempty"`
}

// Sender is a Service that sends new connections to an endpoint.
type Sender struct {
	Service string `json:"service"`
	Domain  string `json:"domain"`
	// State is "applied" if the Service's newest rules have the endpoint, and "pending" or "held" if
	// the rules without it are not applied yet.
	State string `json:"state"`
}

// Public returns the answer without names.
func (g Gone) Public() Gone {
	g.APIVersion, g.Services, g.More = "", nil, false
	return g
}

// ParseEndpoint reads an address, or an address and a port.
func ParseEndpoint(text string) (at netip.AddrPort, err error) {
	addr, err := netip.ParseAddr(text)
	if at = netip.AddrPortFrom(addr.Unmap(), 0); err != nil {
		at, err = netip.ParseAddrPort(text)
		if at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port()); err == nil && at.Port() == 0 {
			err = errors.New("port 0")
		}
	}
	if err != nil || at.Addr().Zone() != "" {
		return at, fmt.Errorf("endpoint %q: must be an address, or an address and a port, such as 10.0.0.1 or [fd00::1]:8080", text)
	}
	return at, nil
}

// EndpointText is the reverse of ParseEndpoint.
func EndpointText(at netip.AddrPort) string {
	if at.Port() == 0 {
		return at.Addr().String()
	}
	return at.String()
}

// ParseGoneQuery reads an endpoint and the time to wait, which may be empty. GoneWaitMax limits that time.
func ParseGoneQuery(endpoint, wait string) (q GoneQuery, err error) {
	if q.At, err = ParseEndpoint(endpoint); err != nil || wait == "" {
		return q, err
	}
	q.Wait, err = time.ParseDuration(wait)
	if err != nil || q.Wait < 0 {
		return q, fmt.Errorf("wait %q: must be a duration, such as 10s", wait)
	}
	q.Wait = min(q.Wait, GoneWaitMax)
	return q, nil
}

// AnswerGone answers the query in a request. It bounds ask by the wait of the query plus GoneSearchTime, and changes
// the deadlines of the connection accordingly.
func AnswerGone(w http.ResponseWriter, r *http.Request, endpoint string, ask func(context.Context, GoneQuery) *Gone) (*Gone, error) {
	q, err := ParseGoneQuery(endpoint, r.URL.Query().Get("wait"))
	if err != nil {
		return nil, failure{http.StatusBadRequest, err.Error()}
	}
	limit := q.Wait + GoneSearchTime
	control, end := http.NewResponseController(w), time.Now().Add(limit+writeTime)
	_ = errors.Join(control.SetWriteDeadline(end), control.SetReadDeadline(end)) // httptest.ResponseRecorder has none
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	return ask(ctx, q), nil
}

// gone answers at PathGone.
func (h *handler) gone(w http.ResponseWriter, r *http.Request) (any, error) {
	made, err := AnswerGone(w, r, r.PathValue("endpoint"), h.source.Gone)
	if err != nil {
		return nil, err
	}
	made.APIVersion = Version
	return made, nil
}

// Gone asks about an endpoint.
func (c *Client) Gone(ctx context.Context, q GoneQuery) (*Gone, error) {
	path := strings.Replace(PathGone, "{endpoint}", url.PathEscape(EndpointText(q.At)), 1)
	return get[Gone](ctx, c, path, url.Values{"wait": {q.Wait.String()}})
}
