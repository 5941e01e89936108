// Package iptables is the iptables backend: it renders Services into rules and writes them
// with iptables-restore, in the legacy and in the nft variant of the tools. It owns the
// chains and hooks of one [Territory] in one family's tables. internal/daemon/backend builds
// one domain per family from it; IPVS mode uses its [Writer] for the few rules that it needs.
//
// Rendering:
//
//	names.go        names of chains, dispatch containers, what identities mean
//	territory.go    which chains and hooks are ours
//	renderer.go     what one Service becomes; render_port.go: one service port
//	scaffold.go     the chains that belong to no Service
//	rule.go         the text of one rule, written; package rules reads it
//
// Writing:
//
//	writer.go       Write and Read
//	plan.go         the steps of one batch, and how a large one is divided
//	input.go        the text for iptables-restore
//	save.go         what iptables-save prints
//	cleanup.go      removes everything that is ours
//
// Watching for changes by other programs: watch.go, watch_sizes.go.
//
// The programs: tool.go (the contract, failures, the lock), exec.go (runs them), programs.go
// (finds them, and what the node offers), detect.go (chooses the variant).
package iptables
