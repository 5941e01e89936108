// Package wire speaks netlink to nf_tables: attributes, messages, transactions
// and dumps over one socket. It knows how bytes are laid out and how the kernel
// answers; what they mean is its users' business.
//
// It goes below github.com/google/nftables for three things that this proxy
// lives on: a refusal names the exact attribute that was refused, a transaction
// is one buffer without an answer per message, and the size of both is under
// control (docs/adr/0006-nftables-shape.md).
package wire
