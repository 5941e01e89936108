// SPDX-License-Identifier: Apache-2.0

//go:build linux

package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/iptables/rules"
)

// chance returns the probability with which a rule matches a packet. It evaluates all matches, so that an unknown one
// is an error in any position.
func (r *iptRules) chance(rule *rules.Rule, b *iptBranch) (float64, error) {
	chance := 1.0
	for i := range rule.Matches {
		c, err := r.match(&rule.Matches[i], b)
		if err != nil {
			return 0, err
		}
		chance *= c
	}
	return chance, nil
}

// iptModules are the matches whose options are independent of each other. "" stands for options
// that need no match.
var iptModules = []string{"", "comment", "tcp", "udp", "sctp", "addrtype", "conntrack", "mark", "nfacct", "set", "physdev"}

func (r *iptRules) match(m *rules.Match, b *iptBranch) (chance float64, err error) {
	holds := true
	switch {
	case m.Module == "statistic":
		return randomChance(m)
	case m.Module == "recent":
		holds, err = r.recentHolds(m, b)
	case !slices.Contains(iptModules, m.Module):
		err = fmt.Errorf("unknown match %q", m.Module)
	default:
		for i := range m.Options {
			o := &m.Options[i]
			one, failed := r.holds(o, b)
			if failed != nil {
				return 0, failed
			}
			holds = holds && one != o.Not
		}
	}
	if err != nil || !holds {
		return 0, err
	}
	return 1, nil
}

// holds evaluates one option without its negation.
func (r *iptRules) holds(o *rules.Option, b *iptBranch) (bool, error) {
	value := o.Arg(0)
	switch o.Name {
	case "--comment", "--nfacct-name":
		return true, nil
	case "-s", "-d", "--src-type", "--dst-type":
		addr := b.dst.Addr()
		if o.Name == "-s" || o.Name == "--src-type" {
			addr = b.src.Addr()
		}
		return r.addressHolds(o, addr)
	case "-i":
		prefix, open := strings.CutSuffix(value, "+")
		return b.in == value || open && b.in != "" && strings.HasPrefix(b.in, prefix), nil
	case "-p":
		return b.protocol.String() == value, nil
	case "--dport":
		low, high, err := o.Ports()
		return low <= b.dst.Port() && b.dst.Port() <= high, err
	case "--ctstate":
		return stateHolds(value, b)
	case "--mark":
		bits, mask, err := o.Mark()
		return b.mark&mask == bits, err
	case "--match-set":
		_, found, err := r.findInSet(o, b)
		return found, err
	case "--physdev-is-in":
		// A packet does not contain whether it came over a bridge. The outcome of Sluice's rules does not depend on it.
		return false, nil
	}
	return false, fmt.Errorf("unknown option %q", o.Name)
}

func (r *iptRules) addressHolds(o *rules.Option, addr netip.Addr) (bool, error) {
	if o.Name == "-s" || o.Name == "-d" {
		prefix, err := o.Prefix()
		return prefix.Contains(addr), err
	}
	if o.Arg(0) != "LOCAL" {
		return false, fmt.Errorf("unknown type of address %q", o.Arg(0))
	}
	return r.local(addr), nil
}

// stateHolds compares states with that of the connection, which is new.
func stateHolds(list string, b *iptBranch) (bool, error) {
	states := strings.Split(list, ",")
	for _, state := range states {
		if !slices.Contains([]string{"NEW", "DNAT", "RELATED", "ESTABLISHED", "INVALID"}, state) {
			return false, fmt.Errorf("unknown state %q", state)
		}
	}
	return slices.Contains(states, "NEW") || b.translated && slices.Contains(states, "DNAT"), nil
}

// randomChance reads "--mode random --probability P".
func randomChance(m *rules.Match) (float64, error) {
	probability := m.Option("--probability")
	if probability == nil {
		return 0, fmt.Errorf("match statistic without a probability")
	}
	return strconv.ParseFloat(probability.Arg(0), 64)
}

// recentHolds evaluates a match on a list of clients. A match that adds a client to the list always holds.
func (r *iptRules) recentHolds(m *rules.Match, b *iptBranch) (bool, error) {
	for _, o := range m.Options {
		if !slices.Contains([]string{"--set", "--rcheck", "--seconds", "--name", "--mask", "--rsource", "--reap"}, o.Name) {
			return false, fmt.Errorf("unknown option %q of match recent", o.Name)
		}
	}
	seconds, list := m.Option("--seconds"), m.Option("--name")
	switch {
	case m.Option("--rcheck") == nil:
		return true, nil
	case seconds == nil || list == nil:
		return false, fmt.Errorf("match recent without a list or a time")
	}
	within, err := strconv.ParseUint(seconds.Arg(0), 10, 31)
	if err != nil {
		return false, err
	}
	age, known := r.seen(list.Arg(0), b.src.Addr())
	return known && age <= time.Duration(within)*time.Second, nil
}

// recalls reports whether a rule looks for a remembered client.
func recalls(rule *rules.Rule) bool {
	return slices.ContainsFunc(rule.Matches, func(m rules.Match) bool { return m.Module == "recent" && m.Option("--rcheck") != nil })
}

// lookup returns the option with the set that a rule looks up; nil if there is none.
func lookup(rule *rules.Rule) *rules.Option {
	for i := range rule.Matches {
		if o := rule.Matches[i].Option("--match-set"); o != nil && !o.Not {
			return o
		}
	}
	return nil
}

// checkTarget rejects a target with an unknown option. A target with an unknown name is a missing chain, which apply
// rejects.
func checkTarget(t *rules.Target) error {
	for _, o := range t.Options {
		if !slices.Contains([]string{"--set-xmark", "--to-destination", "--random-fully", "--reject-with"}, o.Name) {
			return fmt.Errorf("unknown option %q of target %s", o.Name, t.Name)
		}
	}
	return nil
}
