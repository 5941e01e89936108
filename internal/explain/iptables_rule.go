package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
)

// iptRule is one rule: matches, and what happens then.
type iptRule struct {
	// conditions return the probability with which they hold.
	conditions []iptCondition
	// target is a chain or one of the targets that our rules use, and "" for none.
	target string
	isGoto bool
	// recalls is set for a rule that looks for remembered clients.
	recalls             bool
	to                  netip.AddrPort
	markValue, markMask uint32
	// lookup is the set that the rule looks up, or nil.
	lookup *setLookup
}

type iptCondition func(*iptRules, *iptBranch) float64

// matches returns the probability that the rule matches.
func (rule *iptRule) matches(r *iptRules, b *iptBranch) float64 {
	chance := 1.0
	for _, c := range rule.conditions {
		if chance *= c(r, b); chance == 0 {
			break
		}
	}
	return chance
}

// parse reads the rules once. They may look up these sets.
func (c *iptChain) parse(sets map[string]ipSet) error {
	for len(c.rules) < len(c.texts) {
		text := c.texts[len(c.rules)]
		rule, err := parseIPTRule(text, sets)
		if err != nil {
			return fmt.Errorf("table %s, chain %s: rule %q: %w", c.table, c.name, text, err)
		}
		c.rules = append(c.rules, rule)
	}
	return nil
}

// iptParser reads the words of a rule.
type iptParser struct {
	words []string
	not   bool
	rule  iptRule
	// recent is the match "recent" that is being read.
	recent *recent
	sets   map[string]ipSet
}

// recent is a match on a list of clients.
type recent struct {
	check  bool
	within time.Duration
	list   string
}

func parseIPTRule(text string, sets map[string]ipSet) (iptRule, error) {
	p := iptParser{words: iptables.SplitRule(text), sets: sets}
	for len(p.words) > 0 {
		word := p.next()
		if word == "!" {
			p.not = true
			continue
		}
		if err := p.option(word); err != nil {
			return iptRule{}, err
		}
		p.not = false
	}
	return p.rule, nil
}

// next takes the next word; it is "" at the end.
func (p *iptParser) next() string {
	if len(p.words) == 0 {
		return ""
	}
	word := p.words[0]
	p.words = p.words[1:]
	return word
}

// when adds a condition, negated if "!" stood before it.
func (p *iptParser) when(holds func(*iptRules, *iptBranch) bool) {
	not := p.not
	p.rule.conditions = append(p.rule.conditions, func(r *iptRules, b *iptBranch) float64 {
		if holds(r, b) != not {
			return 1
		}
		return 0
	})
}

// iptModules are the matches that need no word but their name.
var iptModules = []string{"comment", "tcp", "udp", "sctp", "addrtype", "conntrack", "mark", "nfacct", "statistic", "set", "physdev"}

// option reads one option with its arguments.
func (p *iptParser) option(word string) error {
	switch word {
	case "-m":
		module := p.next()
		if module == "recent" {
			p.recent = &recent{}
		} else if !slices.Contains(iptModules, module) {
			return fmt.Errorf("unknown match %q", module)
		}
	case "--comment", "--mode", "--mask", "--reject-with", "--nfacct-name":
		p.next()
	case "--random-fully", "--rsource", "--reap":
	case "-s", "-d", "-i", "-p", "--dport", "--src-type", "--dst-type", "--ctstate":
		return p.packetMatch(word, p.next())
	case "--match-set":
		return p.setMatch(p.next(), p.next())
	case "--physdev-is-in":
		// Whether a packet has come over a bridge is not asked. Our rules end alike either way.
		p.when(func(*iptRules, *iptBranch) bool { return false })
	case "--mark", "--set-xmark":
		return p.markOption(word, p.next())
	case "--probability":
		chance, err := strconv.ParseFloat(p.next(), 64)
		p.rule.conditions = append(p.rule.conditions, func(*iptRules, *iptBranch) float64 { return chance })
		return err
	case "--set", "--rcheck", "--seconds", "--name":
		return p.recentOption(word)
	case "-j", "-g":
		p.rule.target, p.rule.isGoto = p.next(), word == "-g"
		if strings.ToUpper(p.rule.target) == p.rule.target && !strings.Contains(p.rule.target, "-") &&
			!slices.Contains(iptTargets, p.rule.target) {
			return fmt.Errorf("unknown target %q", p.rule.target)
		}
	case "--to-destination":
		to, err := netip.ParseAddrPort(p.next())
		p.rule.to = to
		return err
	default:
		return fmt.Errorf("unknown option %q", word)
	}
	return nil
}

// iptTargets are the targets that our rules use. Chains of ours have a hyphen in their names.
var iptTargets = []string{"ACCEPT", "DROP", "REJECT", "RETURN", "DNAT", "MARK", "MASQUERADE"}

// packetMatch reads a match on the packet.
func (p *iptParser) packetMatch(option, value string) error {
	switch option {
	case "-s", "-d":
		prefix, err := netip.ParsePrefix(value)
		p.when(func(_ *iptRules, b *iptBranch) bool {
			if option == "-s" {
				return prefix.Contains(b.src.Addr())
			}
			return prefix.Contains(b.dst.Addr())
		})
		return err
	case "-i":
		prefix, open := strings.CutSuffix(value, "+")
		p.when(func(_ *iptRules, b *iptBranch) bool {
			return b.in == value || open && b.in != "" && strings.HasPrefix(b.in, prefix)
		})
	case "-p":
		p.when(func(_ *iptRules, b *iptBranch) bool { return b.protocol.String() == value })
	case "--dport":
		low, high, isRange := strings.Cut(value, ":")
		from, err := strconv.ParseUint(low, 10, 16)
		to := from
		if err == nil && isRange {
			to, err = strconv.ParseUint(high, 10, 16)
		}
		p.when(func(_ *iptRules, b *iptBranch) bool {
			return uint64(b.dst.Port()) >= from && uint64(b.dst.Port()) <= to
		})
		return err
	case "--src-type", "--dst-type":
		if value != "LOCAL" {
			return fmt.Errorf("unknown type of address %q", value)
		}
		p.when(func(r *iptRules, b *iptBranch) bool {
			if option == "--src-type" {
				return r.local(b.src.Addr())
			}
			return r.local(b.dst.Addr())
		})
	case "--ctstate":
		return p.stateMatch(strings.Split(value, ","))
	}
	return nil
}

// stateMatch reads a match on the connection, which is new.
func (p *iptParser) stateMatch(states []string) error {
	for _, state := range states {
		if !slices.Contains([]string{"NEW", "DNAT", "RELATED", "ESTABLISHED", "INVALID"}, state) {
			return fmt.Errorf("unknown state %q", state)
		}
	}
	p.when(func(_ *iptRules, b *iptBranch) bool {
		return slices.Contains(states, "NEW") || b.translated && slices.Contains(states, "DNAT")
	})
	return nil
}

// markOption reads VALUE/MASK of a match on the mark, or of its change.
func (p *iptParser) markOption(option, text string) error {
	first, second, ok := strings.Cut(text, "/")
	value, err := strconv.ParseUint(first, 0, 32)
	mask := uint64(1<<32 - 1)
	if ok && err == nil {
		mask, err = strconv.ParseUint(second, 0, 32)
	}
	if option == "--set-xmark" {
		p.rule.markValue, p.rule.markMask = uint32(value), uint32(mask)
	} else {
		p.when(func(_ *iptRules, b *iptBranch) bool { return b.mark&uint32(mask) == uint32(value) })
	}
	return err
}

// recentOption reads the match "recent". Its name comes last and makes it complete.
func (p *iptParser) recentOption(option string) error {
	if p.recent == nil {
		return fmt.Errorf("%s outside of the match recent", option)
	}
	switch option {
	case "--rcheck":
		p.recent.check = true
	case "--seconds":
		seconds, err := strconv.ParseUint(p.next(), 10, 31)
		p.recent.within = time.Duration(seconds) * time.Second
		return err
	case "--name":
		match := *p.recent
		match.list = p.next()
		if match.check { // the other, --set, always holds
			p.rule.recalls = true
			p.when(func(r *iptRules, b *iptBranch) bool {
				age, known := r.seen(match.list, b.src.Addr())
				return known && age <= match.within
			})
		}
		p.recent = nil
	}
	return nil
}
