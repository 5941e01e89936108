// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/internal/netlink"
)

// The programs of the nft variant print no table that contains a chain or a rule that iptables cannot express, for
// example a masquerade rule made with nft. They still print and change single chains. So this file reads such a table
// by chain: the proxy's chains, and the hooks in built-in chains.

// errUnprintable means that iptables-save cannot print a table, because another program added rules to it with nft.
var errUnprintable = errors.New("iptables cannot print the table, because it contains rules made with nft")

// isUnprintable reports whether iptables-save printed a remark instead of a table.
func isUnprintable(table render.Table, printed []byte) bool {
	return bytes.Contains(printed, []byte("Table `"+string(table)+"' is incompatible"))
}

// unprintableRule stands for the rules of a chain of the proxy that iptables cannot print. It differs from every rule
// of the proxy, so an audit repairs the chain. If it is written, it has no effect.
const unprintableRule = `-m comment --comment "rules that iptables cannot print"`

// readChains reads the chains and hooks of an Ownership from a table that iptables cannot print as a whole. Of foreign
// chains it reads only the jumps to owned chains.
func readChains(ctx context.Context, tool Tool, table render.Table, of Ownership) (*saved, error) {
	names, err := tool.Chains(ctx, table)
	if err != nil {
		return nil, fmt.Errorf("table %s: list chains: %w", table, err)
	}
	wanted := func(chain string) bool {
		return isBuiltIn(chain) || of.Owns(table, chain) || render.IsShared(table, chain)
	}
	printed, unprintable, err := tool.List(ctx, table, slices.DeleteFunc(slices.Clone(names), func(chain string) bool { return !wanted(chain) }))
	if err != nil {
		return nil, err
	}
	s, err := parseList(table, printed)
	if err != nil {
		return nil, err
	}
	for _, chain := range unprintable {
		if s.declare(chain); !isBuiltIn(chain) {
			s.rules[chain] = []string{unprintableRule}
		} else if s.rules[chain], err = hooksOf(ctx, tool, table, chain, of); err != nil {
			return nil, err
		}
	}
	return s, s.addJumps(ctx, tool, of)
}

// addJumps adds the jumps to owned chains from chains that were not printed.
func (s *saved) addJumps(ctx context.Context, tool Tool, of Ownership) error {
	jumps, err := tool.Jumps(ctx, s.table)
	if err != nil {
		return fmt.Errorf("table %s: list rules: %w", s.table, err)
	}
	for chain, targets := range jumps {
		targets = slices.DeleteFunc(targets, func(target string) bool { return !of.Owns(s.table, target) })
		if s.exists[chain] || len(targets) == 0 {
			continue
		}
		s.declare(chain)
		for _, target := range targets {
			s.rules[chain] = append(s.rules[chain], "-j "+target)
		}
	}
	return nil
}

// hooksOf returns the hooks in a built-in chain whose rules iptables cannot print.
func hooksOf(
	ctx context.Context, tool Tool, table render.Table, chain string, of Ownership,
) (found []string, err error) {
	for _, h := range of.Hooks {
		if h.Table != table || h.Chain != chain || slices.Contains(found, h.Text()) {
			continue
		}
		exists, err := tool.HasHook(ctx, table, chain, h.Rule)
		if err != nil {
			return nil, err
		}
		if exists {
			found = append(found, h.Text())
		}
	}
	return found, nil
}

// parseList reads the output of iptables -S: "-P CHAIN POLICY" or "-N CHAIN" for a chain, then its rules.
func parseList(table render.Table, printed []byte) (*saved, error) {
	s := newSaved(table)
	for line := range strings.Lines(normalized(printed)) {
		line = strings.TrimSuffix(line, "\n")
		switch kind, rest, _ := strings.Cut(line, " "); kind {
		case "-P", "-N":
			chain, _, _ := strings.Cut(rest, " ")
			s.declare(chain)
		case "#": // the table has chains of other programs with hooks that iptables does not know
		default:
			if !s.add(line) {
				return nil, fmt.Errorf("table %s: unknown line of iptables -S: %q", table, line)
			}
		}
	}
	return s, nil
}

// unprintableChain matches the message of a program that cannot print a chain, or that does not find it.
var unprintableChain = regexp.MustCompile("chain `([^']+)' in table `[^']+' is incompatible")

// List prints chains with one process, plus one process for each chain that cannot be printed.
func (e *Exec) List(
	ctx context.Context, table render.Table, chains []string,
) (printed []byte, unprintable []string, err error) {
	return e.list(ctx, table, chains, "\n-S ")
}

// listCounters prints, with counters, the chains of a table whose counters are used; see render.CountedIn.
func (e *Exec) listCounters(ctx context.Context, table render.Table) ([]byte, error) {
	names, err := e.Chains(ctx, table)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		what, _ := render.CountedIn(render.ChainID(table, name))
		return what == render.CountsNothing
	})
	printed, _, err := e.list(ctx, table, names, "\n-v -S ")
	return printed, err
}

func (e *Exec) list(
	ctx context.Context, table render.Table, chains []string, command string,
) (printed []byte, unprintable []string, err error) {
	for len(chains) > 0 {
		input := "*" + string(table) + command + strings.Join(chains, command) + "\nCOMMIT\n"
		some, err := e.run(ctx, []byte(input), e.programs.restore, "--noflush", "-w", strconv.Itoa(e.waitSeconds))
		printed = append(printed, some...)
		if err == nil {
			break
		}
		name := unprintableChain.FindStringSubmatch(err.Error())
		if name == nil {
			return nil, nil, err
		}
		at := slices.Index(chains, name[1])
		if at < 0 {
			return nil, nil, err
		}
		unprintable, chains = append(unprintable, name[1]), chains[at+1:]
	}
	return printed, unprintable, nil
}

// Chains lists the chains with netlink.
func (e *Exec) Chains(ctx context.Context, table render.Table) (names []string, err error) {
	err = e.dump(ctx, unix.NFT_MSG_GETCHAIN, nil, func() { names = nil }, func(attrs []byte) {
		if netlink.Find(attrs, unix.NFTA_CHAIN_TABLE).Text() == string(table) {
			names = append(names, netlink.Find(attrs, unix.NFTA_CHAIN_NAME).Text())
		}
	})
	return names, err
}

// Jumps reads the rules with netlink.
func (e *Exec) Jumps(ctx context.Context, table render.Table) (jumps map[string][]string, err error) {
	of := netlink.AppendText(nil, unix.NFTA_RULE_TABLE, string(table))
	err = e.dump(ctx, unix.NFT_MSG_GETRULE, of, func() { jumps = make(map[string][]string) }, func(attrs []byte) {
		if target := jumpOf(attrs); target != "" {
			chain := netlink.Find(attrs, unix.NFTA_RULE_CHAIN).Text()
			jumps[chain] = append(jumps[chain], target)
		}
	})
	return jumps, err
}

// jumpOf returns the chain that a rule leads to.
func jumpOf(attrs []byte) (target string) {
	for e := range netlink.Attrs(netlink.Find(attrs, unix.NFTA_RULE_EXPRESSIONS).Data) {
		if netlink.Find(e.Data, unix.NFTA_EXPR_NAME).Text() == "immediate" {
			value := netlink.Find(netlink.Find(e.Data, unix.NFTA_EXPR_DATA).Data, unix.NFTA_IMMEDIATE_DATA).Data
			target = netlink.Find(netlink.Find(value, unix.NFTA_DATA_VERDICT).Data, unix.NFTA_VERDICT_CHAIN).Text()
		}
	}
	return target
}

// legible returns a table that iptables-save did not print, in the form of iptables-save, without the rules of
// unprintable chains.
func (e *Exec) legible(ctx context.Context, table render.Table) (string, error) {
	names, err := e.Chains(ctx, table)
	if err != nil {
		return "", err
	}
	printed, unprintable, err := e.List(ctx, table, names)
	if err != nil {
		return "", err
	}
	text := &strings.Builder{}
	fmt.Fprintf(text, "*%s\n", table)
	for _, chain := range unprintable {
		fmt.Fprintf(text, ":%s - [0:0]\n", chain)
	}
	for line := range strings.Lines(string(printed)) {
		switch kind, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " "); kind {
		case "-N":
			fmt.Fprintf(text, ":%s - [0:0]\n", rest)
		case "-P":
			fmt.Fprintf(text, ":%s [0:0]\n", rest)
		default:
			text.WriteString(line)
		}
	}
	return text.String(), nil
}

// builtIn has the type, priorities and hooks with which iptables creates the built-in chains of nat and filter.
var builtIn = map[render.Table]struct {
	kind       string
	priorities map[string]int32
	hooks      map[string]uint32
}{
	render.NAT: {"nat", map[string]int32{"PREROUTING": -100, "OUTPUT": -100, "POSTROUTING": 100},
		map[string]uint32{"PREROUTING": unix.NF_INET_PRE_ROUTING, "OUTPUT": unix.NF_INET_LOCAL_OUT, "POSTROUTING": unix.NF_INET_POST_ROUTING}},
	render.Filter: {"filter", nil,
		map[string]uint32{"INPUT": unix.NF_INET_LOCAL_IN, "FORWARD": unix.NF_INET_FORWARD, "OUTPUT": unix.NF_INET_LOCAL_OUT}},
}

// occupied returns an error if another program created a built-in chain that needs hooks, but not as iptables creates
// it: iptables cannot write to such a chain.
func (e *Exec) occupied(ctx context.Context) (err error) {
	begin := func() { err = nil }
	failed := e.dump(ctx, unix.NFT_MSG_GETCHAIN, nil, begin, func(attrs []byte) {
		table, chain := netlink.Find(attrs, unix.NFTA_CHAIN_TABLE).Text(), netlink.Find(attrs, unix.NFTA_CHAIN_NAME).Text()
		if !slices.Contains(render.HookedChains(render.Table(table)), chain) {
			return
		}
		want, kind := builtIn[render.Table(table)], netlink.Find(attrs, unix.NFTA_CHAIN_TYPE).Text()
		hook := netlink.Find(attrs, unix.NFTA_CHAIN_HOOK).Data
		number, priority := netlink.Find(hook, unix.NFTA_HOOK_HOOKNUM).Uint32(), int32(netlink.Find(hook, unix.NFTA_HOOK_PRIORITY).Uint32())
		if hook == nil || kind != want.kind || number != want.hooks[chain] || priority != want.priorities[chain] {
			err = &ToolError{Outcome: dataplane.Unsupported, Command: "list chains of nf_tables", Err: errors.New("iptables cannot write to a chain that another program made"),
				Output: fmt.Sprintf("chain %s of table %s was made with nft and has type %q, hook %d and priority %d, not %q, %d and %d",
					chain, table, kind, number, priority, want.kind, want.hooks[chain], want.priorities[chain])}
		}
	})
	return cmp.Or(failed, err)
}

// dump calls each with the attributes of every nf_tables object that it lists. It calls begin before each attempt.
func (e *Exec) dump(ctx context.Context, kind uint16, of []byte, begin func(), each func(attrs []byte)) error {
	socket, err := netlink.Open(netlink.Config{Protocol: unix.NETLINK_NETFILTER, ReceiveBytes: 1 << 20})
	if err != nil {
		return err
	}
	defer socket.Close() // opened for reading, nothing can be lost
	request, mark := netlink.BeginNetfilter(nil, unix.NFNL_SUBSYS_NFTABLES, kind, unix.NLM_F_DUMP, netfilterFamily[e.family])
	request = netlink.Finish(append(request, of...), mark)
	return netlink.Dump(ctx, dumpsMax, func() error {
		begin()
		return socket.Ask(ctx, request, func(reply netlink.Message) error {
			if n, ok := reply.Netfilter(unix.NFNL_SUBSYS_NFTABLES); ok {
				each(n.Attrs)
			}
			return nil
		})
	})
}

// dumpsMax limits the attempts to list objects that change during the dump.
const dumpsMax = 200
