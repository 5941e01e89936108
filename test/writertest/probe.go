// SPDX-License-Identifier: Apache-2.0

package writertest

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// Client is a place from which connections are made.
type Client uint8

// The clients of the fixture.
const (
	// FromPod is a pod of the node that is no endpoint.
	FromPod Client = iota
	// FromBackend is endpoint a.
	FromBackend
	// FromNode is a process in the host network of the node.
	FromNode
	// FromOutside has an address inside the allowed source range.
	FromOutside
	// FromStranger has an address outside of it.
	FromStranger
)

// String names the client.
func (c Client) String() string {
	return [...]string{"pod", "backend a", "node", "outside", "stranger"}[c]
}

// address returns the client's own address.
func (f Fixture) address(c Client) netip.Addr {
	return [...]netip.Addr{f.Pod, f.A, f.Node, f.Outside, f.ForeignProcess}[c]
}

// Question is one connection attempt.
type Question struct {
	From     Client
	To       netip.AddrPort
	Protocol service.Protocol
	// Patience is how long to wait for an answer.
	Patience time.Duration
}

// String describes the attempt.
func (q Question) String() string {
	return fmt.Sprintf("%v to %v/%v", q.From, q.To, q.Protocol)
}

// Answer is what the client saw. It is comparable.
type Answer struct {
	Fate Fate
	// Endpoint is the one that answered, and Source the client as it saw it. Set only when
	// Answered.
	Endpoint netip.AddrPort
	Source   Source
}

// Fate is how an attempt ends for the client.
type Fate uint8

const (
	// Answered: an endpoint answered.
	Answered Fate = iota
	// Through: the connection was not translated, and a host at the address itself answered.
	Through
	// Refused: the connection was refused.
	Refused
	// Silent: nothing came back.
	Silent
	// Broken: none of these; the probe itself has failed the test.
	Broken
)

// String names the fate.
func (f Fate) String() string {
	return [...]string{"answered", "through", "refused", "silent", "broken"}[f]
}

// Source is whose address the endpoint saw.
type Source uint8

const (
	// OwnSource is the client's own address.
	OwnSource Source = iota
	// NodeSource is an address of the node. A client on the node has no other.
	NodeSource
	// OtherSource is none of these.
	OtherSource
)

// String names the source.
func (s Source) String() string { return [...]string{"client", "node", "another host"}[s] }

// String describes the answer.
func (a Answer) String() string {
	if a.Fate == Answered {
		return fmt.Sprintf("%v as %v", a.Endpoint, a.Source)
	}
	return a.Fate.String()
}
