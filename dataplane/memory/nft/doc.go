// Package nft is an in-memory nf_tables for tests and simulation: it takes the
// transactions of [wire.Transaction] that the real kernel takes over netlink,
// refuses what the kernel refuses with the same error numbers, answers the same
// questions, and follows packets through the rules.
//
// # What it models
//
// One [Kernel] is one node, with the tables of both IP families: base chains and
// chains, rules, sets and maps (hashed ones, and concatenations whose fields are
// ranges), elements with timeouts, reference counts, generations, the node's own
// addresses, and a clock. A transaction lands whole or not at all. [Kernel.Trace]
// follows the first packet of a new connection, expression by expression, through
// the base chains in the order of their hooks and priorities; [Kernel.Outcomes]
// gives every way in which it can end, with its probability. Packets, traces and
// outcomes are those of package memory, so that one test asks either backend.
//
// # What it leaves out
//
// As in package memory there is no connection tracking (every packet is the first
// of its connection) and there are no routes. Of the bits of a connection's status
// only the one that says "destination translated" is known. A rule knows the
// expressions that Sluice writes, and a counter. Everything else is refused with
// EINVAL and words that say so, never ignored: what lands here is understood.
// The kernel is laxer there, and ignores attributes that it does not know. Nothing
// is announced to listeners: [nftables.Writer.Watch] has a socket of its own, which
// is not part of the contract [nftables.Socket].
//
// # How it is held to the truth
//
// Tests give the same transactions and questions to this package and to the real
// kernel in a namespace of its own, chosen ones and random ones, and compare every
// refusal, the generation, and what is read back. Error numbers are those of
// Linux 6.18; where older kernels give others, the newer ones count.
package nft
