// Package proxy is the front door of Sluice: it assembles the sources, the
// actors, the aggregators and the kernel writers into one running proxy.
//
// Each Service is owned by one goroutine. It keeps its own picture of that
// Service, and when the picture changes it hands a finished fragment of objects
// to the one goroutine that owns a domain's kernel tables. That goroutine
// gathers fragments for as long as the pacing bounds allow, writes one batch,
// and tells each contributor what became of its fragment.
//
//	source ──────► actor ──────► aggregator ──────► writer ──────► kernel
//	        Slice        Fragment            Batch
//	                 ▲                │                │
//	                 └── Verdict ◄────┘◄─── Receipt ◄──┘
//
// Three properties make the rest easy:
//
//  1. Level, not edge. A message says what is, never what changed, so every
//     queue may keep only the newest.
//  2. One owner. Every piece of mutable state has one goroutine that may touch
//     it. What crosses a boundary is an immutable value.
//  3. Forgetting is safe. Start, restart, overflow and audit all run the same
//     path: read the truth again and compare.
//
// Who owns what:
//
//	API cache                          source.Cache (under its lock)
//	key → mailbox                      actors.Directory (under its lock)
//	spec, slices, view, revision       one actor
//	wanted / in flight / known,        one aggregator per domain
//	claims, quarantine
//	the kernel tables                  one writer per domain
//	failure scores, parked children    supervisor
//	node facts                         facts (under its lock), handed out whole
package proxy
