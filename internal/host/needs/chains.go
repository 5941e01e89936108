// SPDX-License-Identifier: Apache-2.0

package needs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Chain is a base chain of another program at a hook that packets to Services pass. For iptables-legacy, it is a whole
// table, or the FORWARD chain if its policy is to drop; then Hook is empty.
type Chain struct {
	// Table contains the family, as in "inet filter".
	Table string
	Name  string
	Hook  string
	// Priority orders the chains of a hook; lower ones come first.
	Priority int32
	// Drops means that the policy is to drop.
	Drops bool
	// Device is the device of a chain of the netdev family, or at the ingress hook.
	Device string

	family uint8
	// accepts means that a rule may accept new connections.
	accepts bool
}

// Text describes the chain in one phrase.
func (c *Chain) Text() string {
	switch {
	case c.Hook == "" && c.Name != "":
		return c.Table + " " + c.Name + " (policy drop)"
	case c.Hook == "":
		return c.Table + " (all chains)"
	}
	text := fmt.Sprintf("%s %s (hook %s", c.Table, c.Name, c.Hook)
	if c.Device != "" {
		text += " of " + c.Device
	}
	text += fmt.Sprintf(", priority %d", c.Priority)
	if c.Drops {
		text += ", policy drop"
	}
	return text + ")"
}

// iptables returns the iptables command that manages the chain.
func (c *Chain) iptables() string {
	program := "iptables"
	if c.family == unix.NFPROTO_IPV6 {
		program = "ip6tables"
	}
	if strings.HasPrefix(c.Table, legacyPrefix) {
		program += "-legacy"
	}
	return program
}

// Sees reports whether packets of a family pass the chain.
func (c *Chain) Sees(family service.Family) bool {
	switch c.family {
	case unix.NFPROTO_IPV4:
		return family == service.IPv4
	case unix.NFPROTO_IPV6:
		return family == service.IPv6
	default:
		return true
	}
}

// families names those of nf_tables whose chains see packets to Services.
var families = map[uint8]string{
	unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_BRIDGE: "bridge", unix.NFPROTO_NETDEV: "netdev",
}

// hookName returns nft's name of a hook.
func hookName(family uint8, hook uint32) string {
	names := []string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}
	if family == unix.NFPROTO_NETDEV {
		names = []string{"ingress", "egress"}
	}
	if int(hook) < len(names) {
		return names[hook]
	}
	return fmt.Sprint(hook)
}

// isOwn reports whether a table is one of Sluice's. kube-proxy's table in nftables mode has the same name as Sluice's.
func isOwn(table string) bool { return table == "kube-proxy" || strings.HasPrefix(table, "sluice-") }

// readAttempts bounds the attempts to read chains, which fail if chains change during the reading.
const readAttempts = 3

// Chains reads the base chains of other programs in the network namespace of the calling thread, by hook and priority.
// Chains without an effect are left out: their policy is accept, and all their rules are the proxy's. With legacy, the
// tables of iptables-legacy count as another program's. It takes about a millisecond, and needs CAP_NET_ADMIN. If it
// returns an error, the chains that it returns as well are correct.
func Chains(ctx context.Context, legacy bool) ([]Chain, error) {
	socket, err := wire.Open()
	if err != nil {
		return nil, err
	}
	defer socket.Close() // nothing was written
	var found []Chain
	err = netlink.Dump(ctx, readAttempts, func() (err error) {
		found, err = readChains(ctx, socket)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list base chains: %w", err)
	}
	slices.SortStableFunc(found, func(a, b Chain) int {
		return strings.Compare(fmt.Sprintf("%s %012d", a.Hook, int64(a.Priority)+1<<32), fmt.Sprintf("%s %012d", b.Hook, int64(b.Priority)+1<<32))
	})
	for _, family := range service.Families {
		of, failed := legacyChains(family, legacy)
		found, err = append(found, of...), errors.Join(err, failed)
	}
	return found, err
}

// legacyChains returns the FORWARD chain of iptables-legacy if it drops and, with all, every table.
func legacyChains(family service.Family, all bool) (found []Chain, err error) {
	protocol := service.PerFamily[uint8]{service.IPv4: unix.NFPROTO_IPV4, service.IPv6: unix.NFPROTO_IPV6}[family]
	prefix := legacyPrefix + families[protocol] + " "
	for _, table := range iptkernel.LegacyTables(family) {
		if all {
			found = append(found, Chain{Table: prefix + table, family: protocol})
		}
	}
	forward, err := iptkernel.LegacyForward(family)
	if forward != nil && forward.Drops {
		found = append(found, Chain{Table: prefix + "filter", Name: "FORWARD", Drops: true, family: protocol,
			accepts: slices.ContainsFunc(forward.Rules, func(r iptkernel.ForwardRule) bool {
				return !r.NotNew && (r.Accepts || leadsElsewhere(r.Chain))
			})})
	}
	return found, err
}

// legacyPrefix begins the names of tables of iptables-legacy.
const legacyPrefix = "iptables-legacy "

// leadsElsewhere reports whether the target of a jump is neither a Service proxy's chain nor Docker's.
func leadsElsewhere(to string) bool {
	return to != "" && !strings.HasPrefix(to, "KUBE-") && !strings.HasPrefix(to, "DOCKER")
}

func readChains(ctx context.Context, socket *wire.Socket) (found []Chain, err error) {
	var all []Chain
	err = socket.Ask(ctx, unix.NFT_MSG_GETCHAIN, unix.NFPROTO_UNSPEC, true, nil, func(m wire.Message) {
		table, hook := netlink.Find(m.Attrs, unix.NFTA_CHAIN_TABLE).Text(), netlink.Find(m.Attrs, unix.NFTA_CHAIN_HOOK).Data
		if hook == nil || families[m.Family] == "" || isOwn(table) {
			return
		}
		const drop = 0 // NF_DROP
		policy := netlink.Find(m.Attrs, unix.NFTA_CHAIN_POLICY).Data
		all = append(all, Chain{
			Table: families[m.Family] + " " + table, Name: netlink.Find(m.Attrs, unix.NFTA_CHAIN_NAME).Text(),
			Hook:     hookName(m.Family, netlink.Find(hook, unix.NFTA_HOOK_HOOKNUM).Uint32()),
			Priority: int32(netlink.Find(hook, unix.NFTA_HOOK_PRIORITY).Uint32()),
			Device:   netlink.Find(hook, unix.NFTA_HOOK_DEV).Text(),
			Drops:    len(policy) == 4 && binary.BigEndian.Uint32(policy) == drop, family: m.Family,
		})
	})
	for i := range all {
		if err != nil {
			return nil, err
		}
		c, foreign := &all[i], false
		_, table, _ := strings.Cut(c.Table, " ")
		request := netlink.AppendText(netlink.AppendText(nil, unix.NFTA_RULE_TABLE, table), unix.NFTA_RULE_CHAIN, c.Name)
		err = socket.Ask(ctx, unix.NFT_MSG_GETRULE, c.family, true, request, func(m wire.Message) {
			r := rules.DecodeRule(m.Attrs)
			foreign = foreign || !leadsToServices(&r)
			c.accepts = c.accepts || mayAccept(&r)
		})
		if errors.Is(err, unix.ENOENT) { // it was removed in the meantime
			err = nil
			continue
		}
		if foreign || c.Drops {
			found = append(found, *c)
		}
	}
	return found, err
}

// leadsToServices reports whether a rule has no effect, or only jumps to a chain of Service rules or of the kubelet.
func leadsToServices(r *rules.Rule) bool {
	last := len(r.Exprs) - 1
	if last < 0 {
		return true // it has no effect
	}
	v, is := r.Exprs[last].(*rules.Verdict)
	return is && strings.HasPrefix(v.Chain, "KUBE-")
}

// mayAccept reports whether a rule may accept the first packet of a connection to a Service, as far as can be told
// without evaluation. Rules of the Service proxy accept only what they marked, and those of Docker only its own bridges.
func mayAccept(r *rules.Rule) bool {
	const accept, stateNew = 1, 8 // NF_ACCEPT, NF_CT_STATE_BIT(IP_CT_NEW)
	decides := false
	for i, e := range r.Exprs {
		switch e := e.(type) {
		case *rules.Verdict:
			decides = e.Code == accept || leadsElsewhere(e.Chain)
		case *rules.VerdictMap:
			decides = true
		case *rules.Unknown:
			if e.Name == "match" && (strings.Contains(e.Attrs, "conntrack\x00") || strings.Contains(e.Attrs, "state\x00")) {
				return false
			}
			decides = decides || e.Name == "lookup"
		case *rules.Conn:
			var mask *rules.Bitwise
			if i+1 < len(r.Exprs) {
				mask, _ = r.Exprs[i+1].(*rules.Bitwise)
			}
			if e.Key == unix.NFT_CT_STATE && (mask == nil || len(mask.Mask) != 4 || binary.NativeEndian.Uint32([]byte(mask.Mask))&stateNew == 0) {
				return false
			}
		}
	}
	return decides
}
