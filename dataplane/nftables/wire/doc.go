// Package wire carries transactions and questions to nf_tables over internal/netlink.
// It knows how a transaction is framed, which message of it stands for which of the
// caller's changes, and how the kernel refuses one. The bodies of the messages are its
// caller's, package nftables.
//
// A refusal names the exact attribute that was refused, a transaction is one buffer
// without an answer per message, and the size of both is under control
// (docs/adr/0006-nftables-shape.md).
package wire
