// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// Verdict is the outcome of a connection to a Service.
type Verdict string

// The verdicts.
const (
	// Closed: an endpoint was chosen, and the connection has ended.
	Closed Verdict = "closed"
	// Refused: the rules of the proxy rejected the packets.
	Refused Verdict = "refused"
	// Dropped: the rules of the proxy or of another program dropped the packets.
	Dropped Verdict = "dropped"
)

// Verdicts has all verdicts.
var Verdicts = []Verdict{Closed, Refused, Dropped}

// Reasons of verdicts besides those of Reason.
const (
	// Unanswered: the endpoint did not answer.
	Unanswered = "unanswered"
	// EndpointRefused: the endpoint reset the connection before it was established.
	EndpointRefused = "endpoint-refused"
	// OtherRules: the rules of the proxy serve the packets, but the packets vanished.
	OtherRules = "other-rules"
)

// Flow is the record of one connection, or of the packets of one that was not served. Its form in JSON is that of the
// flow log.
type Flow struct {
	// Time is when the record was made.
	Time    time.Time `json:"time"`
	Verdict Verdict   `json:"verdict"`
	// Reason is empty for a connection that ended normally.
	Reason    string `json:"reason,omitempty"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Port is the name of the Service port. It is empty for a port without a name.
	Port     string         `json:"port,omitempty"`
	Protocol string         `json:"protocol"`
	Client   netip.AddrPort `json:"client"`
	// Frontend is the address that the client asked for.
	Frontend netip.AddrPort `json:"frontend"`
	// Endpoint is zero if none was chosen.
	Endpoint netip.AddrPort `json:"endpoint,omitzero"`
	// Start is the first packet; zero if it was not seen. End is zero unless the connection is closed.
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// Attempts are the packets of a connection that was not served.
	Attempts int `json:"attempts,omitempty"`
	// Counted is set if packets and bytes are known. In is from the client.
	Counted    bool   `json:"counted"`
	PacketsIn  uint64 `json:"packetsIn,omitempty"`
	PacketsOut uint64 `json:"packetsOut,omitempty"`
	BytesIn    uint64 `json:"bytesIn,omitempty"`
	BytesOut   uint64 `json:"bytesOut,omitempty"`
}

// Service returns the key of the Service.
func (f *Flow) Service() service.Key { return service.Key{Namespace: f.Namespace, Name: f.Name} }
