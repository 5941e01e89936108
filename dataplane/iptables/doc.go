// Package iptables renders Services into iptables rules and writes them with
// iptables-restore, for one IP family per domain, in the legacy and the nft
// variant of the tools.
package iptables
