// SPDX-License-Identifier: Apache-2.0

package explain

// Connections are the connections that the kernel tracks between a client and a destination.
type Connections struct {
	// Error says why the kernel could not be queried.
	Error string       `json:"error,omitempty"`
	Items []Connection `json:"items"`
	// More counts the connections that are left out.
	More int `json:"more,omitempty"`
}

// Connection is one tracked connection. Its packets go where its first packet went, regardless of
// the current rules.
type Connection struct {
	From string `json:"from"`
	// To is where its packets go: the endpoint.
	To string `json:"to"`
	// Source is the address that the endpoint sees.
	Source string `json:"source"`
	// State is the state of a TCP connection, and empty for other protocols.
	State string `json:"state,omitempty"`
	// Offloaded is set while the packets of the connection bypass netfilter.
	Offloaded bool `json:"offloaded,omitempty"`
}
