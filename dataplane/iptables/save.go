package iptables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
)

// saved is one table as iptables-save printed it, without counters and
// comments. All strings are parts of the printed text, which they keep alive.
type saved struct {
	table Table
	// chains holds every chain, built-in ones included, in printed order.
	chains []string
	// rules holds the rules of each chain that has any, in order, without the
	// leading "-A CHAIN ".
	rules map[string][]string
	// exists is the set of chains.
	exists map[string]bool
}

// parseSave reads the output of "iptables-save -t TABLE". No output at all is a
// table that does not exist yet and holds nothing. Anything that is not
// understood is an error: guessing at what the kernel holds would make the audit
// heal what is not ill.
func parseSave(table Table, printed []byte) (*saved, error) {
	s := &saved{table: table, rules: make(map[string][]string), exists: make(map[string]bool)}
	text := string(printed)
	complete, number := true, 0
	for text != "" {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		number++
		switch {
		case line == "":
		case line[0] == '#':
			if err := checkRemark(line); err != nil {
				return nil, fmt.Errorf("table %s: %w", table, err)
			}
		case line == "*"+string(table):
			complete = false
		case line == "COMMIT":
			complete = true
		case complete || !s.add(line):
			return nil, fmt.Errorf("table %s: line %d of iptables-save is not understood: %q", table, number, line)
		}
	}
	if !complete {
		return nil, fmt.Errorf("table %s: iptables-save stopped before COMMIT, after line %d", table, number)
	}
	return s, nil
}

// checkRemark finds the one comment that matters. The nft variant prints it
// instead of a table in which somebody wrote what iptables cannot express, and
// still ends with exit status 0 (seen with 1.8.9).
func checkRemark(line string) error {
	if strings.Contains(line, "is incompatible") {
		return fmt.Errorf("the table cannot be read through iptables because it holds rules made by nft: %s",
			strings.TrimSpace(strings.TrimLeft(line, "# ")))
	}
	return nil
}

// add takes a chain line (":NAME POLICY [packets:bytes]") or a rule line
// ("-A CHAIN rule") and reports whether it was one of them.
func (s *saved) add(line string) bool {
	if name, ok := strings.CutPrefix(line, ":"); ok {
		name, _, ok = strings.Cut(name, " ")
		s.chains = append(s.chains, name)
		s.exists[name] = true
		return ok
	}
	rest, ok := strings.CutPrefix(line, "-A ")
	if !ok {
		return false
	}
	// A rule without match and target is just "-A CHAIN".
	chain, rule, _ := strings.Cut(rest, " ")
	s.rules[chain] = append(s.rules[chain], rule)
	return true
}

// has tells whether a chain holds a rule with exactly this text.
func (s *saved) has(chain, rule string) bool { return slices.Contains(s.rules[chain], rule) }

// object gives a chain as the ledger knows it, nil when it does not exist.
func (s *saved) object(chain string) *dataplane.Object {
	if !s.exists[chain] {
		return nil
	}
	return &dataplane.Object{
		ID:   dataplane.ID{Container: string(s.table), Name: chain},
		Kind: dataplane.Owned,
		Body: strings.Join(s.rules[chain], "\n"),
		Refs: s.refs(chain),
	}
}

// refs lists the chains of the table that a chain's rules lead to, each once,
// in the order of their first mention.
func (s *saved) refs(chain string) []dataplane.ID {
	var refs []dataplane.ID
	var seen map[string]bool // made on the first reference; most chains have none
	for _, rule := range s.rules[chain] {
		target := ruleTarget(rule)
		if !s.exists[target] || seen[target] {
			continue
		}
		if seen == nil {
			seen = make(map[string]bool)
		}
		seen[target] = true
		refs = append(refs, dataplane.ID{Container: string(s.table), Name: target})
	}
	return refs
}
