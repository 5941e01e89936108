// SPDX-License-Identifier: Apache-2.0

// Package sluice holds no code. The packages of the repository, from the lowest layer up:
//
//	service                     values: specs, slices, endpoints, views, node facts
//	mailbox, supervisor         queues that keep the newest message; restarts of children
//	source, source/...          API objects and manifests in, values out; the cache
//	actors                      one actor per Service; it submits fragments
//	dataplane                   the language of actors, aggregators and backends
//	dataplane/ledger            what is wanted in the kernel, and what is known to be there
//	aggregator                  gathers fragments, writes batches, isolates rejected Services
//	dataplane/nftables, ...     the backends: render/ turns Services into objects, kernel/
//	                            writes and reads them, wire/ has the sockets
//	dataplane/conntrack         deletes stale flows
//	proxy                       the assembly of one running proxy
//	observe/...                 logs, metrics, health, events; book/ has the records of Services
//	internal/daemon, cmd/sluice the program; part/ says what a part of the process is, and
//	                            parts.go lists them
//
// Package proxy describes how a change flows, docs/architecture.md the rules that all parts follow, and docs/design
// what each part does.
package sluice
