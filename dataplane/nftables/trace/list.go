// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// chainList maps the base chains of all tables to their type, hook and priority.
type chainList map[place]rules.Base

// listAttempts bounds the attempts to read a list. An attempt fails if the list changes during it.
const listAttempts = 5

// listChains reads the base chains of all families.
func listChains(ctx context.Context, socket *wire.Socket) (chainList, error) {
	var list chainList
	err := netlink.Dump(ctx, listAttempts, func() error {
		list = chainList{}
		return socket.Ask(ctx, unix.NFT_MSG_GETCHAIN, unix.NFPROTO_UNSPEC, true, nil, func(m wire.Message) {
			hook := netlink.Find(m.Attrs, unix.NFTA_CHAIN_HOOK).Data
			if hook == nil {
				return
			}
			at := place{m.Family, netlink.Find(m.Attrs, unix.NFTA_CHAIN_TABLE).Text(), netlink.Find(m.Attrs, unix.NFTA_CHAIN_NAME).Text()}
			list[at] = rules.Base{
				Kind:     netlink.Find(m.Attrs, unix.NFTA_CHAIN_TYPE).Text(),
				Hook:     netlink.Find(hook, unix.NFTA_HOOK_HOOKNUM).Uint32(),
				Priority: int32(netlink.Find(hook, unix.NFTA_HOOK_PRIORITY).Uint32()),
			}
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	return list, nil
}

// translate reports whether a chain translates addresses, so that connection tracking is active.
func (l chainList) translate() bool {
	for at, base := range l {
		if base.Kind == "nat" && isRouted(at.family) {
			return true
		}
	}
	return false
}

// isRouted reports whether chains of a family are called at the IPv4 or IPv6 hooks.
func isRouted(family uint8) bool {
	return family == unix.NFPROTO_IPV4 || family == unix.NFPROTO_IPV6 || family == unix.NFPROTO_INET
}

// tableText returns the family and the name of a table as nft prints them.
func tableText(at place) string {
	names := map[uint8]string{
		unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6",
		unix.NFPROTO_ARP: "arp", unix.NFPROTO_BRIDGE: "bridge", unix.NFPROTO_NETDEV: "netdev",
	}
	return names[at.family] + " " + at.table
}

// found is a rule in the kernel.
type found struct {
	// number counts from 1 within the chain.
	number  int
	text    string
	rejects bool
}

// ruleLists reads all rules of a chain when the caller first asks for one of them.
type ruleLists struct {
	socket *wire.Socket
	family service.Family // of the flow
	known  map[place]map[uint64]found
}

// rule returns a rule. It returns the zero value if the rule was removed, or cannot be read in time.
func (l *ruleLists) rule(ctx context.Context, at place, handle uint64) found {
	list, ok := l.known[at]
	if !ok {
		list = map[uint64]found{}
		request := netlink.AppendText(netlink.AppendText(nil, unix.NFTA_RULE_TABLE, at.table), unix.NFTA_RULE_CHAIN, at.chain)
		err := l.socket.Ask(ctx, unix.NFT_MSG_GETRULE, at.family, true, request, func(m wire.Message) {
			handle := netlink.Find(m.Attrs, unix.NFTA_RULE_HANDLE).Uint64()
			list[handle] = found{len(list) + 1, l.text(at, m.Attrs), rejects(m.Attrs)}
		})
		if err != nil {
			list = map[uint64]found{} // the numbers may be wrong
		}
		if l.known == nil {
			l.known = map[place]map[uint64]found{}
		}
		l.known[at] = list
	}
	return list[handle]
}

// Unprinted begins the text of a rule that package rules cannot print.
const Unprinted = "("

// text prints a rule. If package rules cannot print one of the rule's expressions, text lists the kinds of its unusual
// expressions instead, and its comment.
func (l *ruleLists) text(at place, attrs []byte) string {
	family := l.family
	if at.family == unix.NFPROTO_IPV6 {
		family = service.IPv6
	}
	r := rules.DecodeRule(attrs)
	r.Exprs = slices.DeleteFunc(r.Exprs, func(e rules.Expr) bool {
		u, ok := e.(*rules.Unknown)
		if ok && u.Name == "match" && extension([]byte(u.Attrs)) == "comment" {
			r.Comment, _, _ = strings.Cut(string(netlink.Find([]byte(u.Attrs), matchInfo).Data), "\x00")
			return true
		}
		return ok && u.Name == "counter"
	})
	if text, err := r.Text(family); err == nil {
		return text
	}
	common := []string{"payload", "meta", "cmp", "bitwise", "immediate", "counter", "match comment"}
	unusual := slices.DeleteFunc(kinds(attrs), func(kind string) bool { return slices.Contains(common, kind) })
	text := Unprinted + strings.Join(append(unusual, "…"), ", ") + ")"
	if r.Comment != "" {
		text += fmt.Sprintf(" comment %q", r.Comment)
	}
	return text
}

// kinds returns the kinds of a rule's expressions. For match and target of iptables-nft, it adds the extension's name.
func kinds(attrs []byte) (all []string) {
	for element := range netlink.Attrs(netlink.Find(attrs, unix.NFTA_RULE_EXPRESSIONS).Data) {
		kind := netlink.Find(element.Data, unix.NFTA_EXPR_NAME).Text()
		if kind == "match" || kind == "target" {
			kind += " " + extension(netlink.Find(element.Data, unix.NFTA_EXPR_DATA).Data)
		}
		all = append(all, kind)
	}
	return all
}

// matchInfo is NFTA_MATCH_INFO. For the extension "comment", the attribute has the text of the comment.
const matchInfo = 3

// extension returns the name of an extension of iptables.
func extension(attrs []byte) string {
	const name = 1 // NFTA_MATCH_NAME, NFTA_TARGET_NAME
	return netlink.Find(attrs, name).Text()
}

// rejects reports whether a rule that drops a packet sends an error to its sender.
func rejects(attrs []byte) bool {
	return slices.ContainsFunc(kinds(attrs), func(kind string) bool { return kind == "reject" || kind == "target REJECT" })
}
