// Package ipvs renders Services into virtual servers of the kernel's IPVS, with
// the addresses, sets and iptables rules that they need, for one IP family per
// domain.
//
// Only netlink is needed for what Services come and go with: virtual servers, set
// entries and addresses. The iptables rules ask sets about Services, so that they
// are the same for all of them and change with the node's facts alone.
package ipvs
