// SPDX-License-Identifier: Apache-2.0

// Package proxy assembles the source, the actors, the aggregators and the kernel
// writers into one running proxy. The command builds its Config; internal/daemon
// supplies the domains.
//
// Each Service is owned by one actor, which keeps the state of that Service and has a
// goroutine only while it works. When the state changes, the actor submits a finished
// fragment of objects to the one goroutine that owns a domain's kernel tables. That
// goroutine gathers fragments for as long as the pacing bounds allow, writes one batch,
// and acknowledges each contributor's fragment.
//
//	source ──────► actor ──────► aggregator ──────► writer ──────► kernel
//	        Slice        Fragment            Batch
//	                 ▲                │                │
//	                 └──── Ack ◄──────┘◄─── Receipt ◄──┘
//
// Three properties make the rest easy:
//
//  1. Level, not edge. A message carries the state, never the change, so every
//     queue may keep only the newest message.
//  2. One owner. Every piece of mutable state has one goroutine at a time that may
//     touch it. Values that cross a boundary are immutable.
//  3. Forgetting is safe. Start, restart, overflow and audit all run the same
//     path: read the state again and compare.
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
