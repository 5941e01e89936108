// Package conntrack removes UDP flows that lead to where a Service does not
// lead any more.
//
// The kernel translates the first packet of a flow and remembers the result
// (conntrack) for as long as packets come. A UDP client that keeps its socket
// would therefore be glued to an endpoint that has gone, or to no translation
// at all. TCP ends by itself.
//
// A [Cleaner] is told each view of a Service once the kernel's rules follow it,
// never before: a flow deleted too early would come back by the old rules. It
// then sweeps: reads the flows of the frontends concerned from the kernel, judges
// each while it arrives, and deletes those that are stale. What it has been told
// is forgotten only when a sweep has done it.
//
//	Programmed ──► mailbox ──► keeper (one per family) ──► sweep ──► kernel
//	       picture              owns table and pace
//
// docs/adr/0008-conntrack.md says what is stale and why, and where that differs
// from kube-proxy.
package conntrack
