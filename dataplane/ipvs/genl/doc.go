// Package genl speaks generic netlink to IPVS: virtual servers ([Service]) with
// their real servers ([Destination]) in one network namespace, changed by lists
// of requests and listed. It knows how bytes are laid out and how the kernel
// answers; what ought to be there is its users' business.
//
// It goes below github.com/moby/ipvs, which waits for an answer to each request:
// here a list is handed over in few sends, and each request of it still has an
// outcome of its own (docs/adr/0011-ipvs.md, "Wire"). That package is the judge
// in the tests that need a kernel with IPVS (build tag ipvs, hack/ipvs-vm).
//
// Facts are those of the kernel's include/uapi/linux/ip_vs.h and
// net/netfilter/ipvs/ip_vs_ctl.c, as Linux 6.1 has them.
package genl
