// Package nftables renders Services into elements of a few nf_tables maps, and
// writes them over netlink, one transaction per batch, for one IP family per
// domain. What packets do is kube-proxy's nftables mode; the ruleset's shape is
// our own (docs/adr/0006-nftables-shape.md):
//
//	frontends         address, protocol, port ─► class chain, for example cluster-12
//	cluster-12        tries random slots of a table of 12; one for all Services that size
//	cluster-endpoints address, protocol, port, slot ─► endpoint
//
// A Service is elements, and costs its neighbours nothing. Only Services with
// ClientIP affinity have chains of their own, since the kernel has to remember
// per Service who was sent where.
package nftables
