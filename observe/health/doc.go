// Package health answers whether this node's proxy does its work: to load
// balancers and probes over HTTP, and to people in words.
//
//	status of domains ─┐
//	events ────────────┼─► Monitor ──► Server   /healthz, /livez
//	Node, API ─────────┘       └────► Ports    one listener per Service that asks for it
//
// A [Monitor] judges: it reads the newest snapshots when it is asked, and
// listens to events for what no snapshot tells. A [Server] answers for the node,
// as kube-proxy does, and with ?verbose says what is wrong and what to do about
// it. [Ports] answers for single Services, on their health-check node ports.
//
// One bad Service never makes the node unhealthy: what is quarantined, parked or
// stuck is listed, and counts for nothing. docs/health.md has the meaning of
// each answer.
package health
