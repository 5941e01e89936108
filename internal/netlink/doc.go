// Package netlink is the transport under everything that Sluice encodes itself:
// nf_tables, conntrack, IPVS and ipset. It owns sockets, buffers, message headers,
// attributes, sequence numbers and answers. What a message means is its caller's
// business; netfilter's header and the announcements of nf_tables are here because
// several callers share them.
//
// Messages and attributes are appended to a byte slice, so that a caller with one
// buffer allocates nothing. A [Socket] has two kinds of conversation:
//
//   - [Socket.Exchange] sends any number of requests in one buffer. The kernel
//     answers those that it refuses, and those that ask for an answer. Usually only
//     the last one does: its answer shows that none was lost.
//   - [Socket.Ask] sends one question and reads the reply, which may be a dump.
//
// A [Listener] receives what the kernel announces to a multicast group.
//
// docs/adr/0020-one-netlink-transport.md says why this is not a library, with
// figures.
package netlink
