// SPDX-License-Identifier: Apache-2.0

package explain

// Answer describes what happens to a connection.
type Answer struct {
	From      string `json:"from"`
	Interface string `json:"interface,omitempty"`
	To        string `json:"to"`
	Protocol  string `json:"protocol"`
	Node      string `json:"node"`
	Mode      string `json:"mode"`
	Origin    Origin `json:"origin"`
	// Assumed lists the assumptions about what the flow left open.
	Assumed []string `json:"assumed,omitempty"`
	// Frontends are the service ports at the destination. The first one gets the connection.
	Frontends []Frontend `json:"frontends,omitempty"`
	// Pending are the Services concerned whose newest rules are not applied, with the reason. The answer describes the
	// newest rules. Nil without a running proxy.
	Pending []Pending `json:"pending,omitempty"`
	Verdict Verdict   `json:"verdict"`
	// Source says whose address the receiver sees: the client's, the node's, or either,
	// depending on the endpoint. It is empty without a receiver.
	Source Source `json:"source,omitempty"`
	// Scheduler is the IPVS scheduler, if it chooses among the outcomes by a hash or by its state, so that their
	// probabilities are unknown. Otherwise it is empty.
	Scheduler string `json:"scheduler,omitempty"`
	// Reasons explain the answer, one sentence each.
	Reasons []string `json:"reasons,omitempty"`
	// Outcomes are all ways in which the connection can end, the most probable first.
	Outcomes []Outcome `json:"outcomes"`
	// Connections are those that the kernel already tracks between client and destination. The rules do not affect
	// them. Nil if the kernel was not queried.
	Connections *Connections `json:"connections,omitempty"`
	// NotEvaluated describes chains of other programs that packets also pass. They may change the outcome.
	NotEvaluated []string `json:"notEvaluated,omitempty"`
}

// Pending is a Service whose newest rules are not applied.
type Pending struct {
	Service string `json:"service"`
	State   string `json:"state"`
	Reason  string `json:"reason,omitempty"`
}

// Source is whose address a receiver sees.
type Source string

// The sources.
const (
	AsClient Source = "the client"
	AsNode   Source = "the node"
	AsEither Source = "the client or the node"
)

// Frontend is a service port at the destination.
type Frontend struct {
	Service string `json:"service"`
	Port    string `json:"port,omitempty"`
	// Kind is the name of a service.FrontendKind.
	Kind string `json:"kind"`
	// Policy is the traffic policy that applies there, Cluster or Local.
	Policy string `json:"policy"`
}

// Outcome is one way in which the connection can end.
type Outcome struct {
	Verdict Verdict `json:"verdict"`
	// To is the receiver's address and port.
	To string `json:"to"`
	// Probability is above 0, and the probabilities of all outcomes add up to 1. It is 0 if it is unknown
	// (Answer.Scheduler).
	Probability float64 `json:"probability"`
	Masqueraded bool    `json:"masqueraded"`
	// Node, Ready and Terminating describe the endpoint.
	Node        string `json:"node,omitempty"`
	Ready       bool   `json:"ready,omitempty"`
	Terminating bool   `json:"terminating,omitempty"`
	// Steps are the rules that matched, in the order of the hooks.
	Steps []Step `json:"steps"`
}

// Origin is where a connection comes from.
type Origin string

// The origins.
const (
	FromNode    Origin = "this node"
	FromPod     Origin = "a pod on this node"
	FromOutside Origin = "outside of this node"
)

// Prefixes of texts that end with an error of the kernel: of an entry of NotEvaluated, and of a reason.
const (
	UnknownChains  = "unknown: "
	UnreadAffinity = "cannot read session-affinity entries: "
)

// UnknownHere begins the reason that lists the kinds of Services that a proxy does not receive from the API server.
const UnknownHere = "not served, and unknown here"
