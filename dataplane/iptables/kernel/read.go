// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/dataplane/iptables/rules"
)

// saved is one table as iptables-save printed it, without counters and comments. All strings are
// substrings of the printed text, and keep it in memory.
type saved struct {
	table render.Table
	// chains holds every chain in printed order, including built-in ones.
	chains []string
	// rules holds the rules of each chain that has any, in order, without the leading
	// "-A CHAIN ".
	rules map[string][]string
	// exists is the set of chains.
	exists map[string]bool
}

func newSaved(table render.Table) *saved {
	return &saved{table: table, rules: make(map[string][]string), exists: make(map[string]bool)}
}

// readTable reads one table. If iptables cannot print the table, it reads only what the Ownership covers.
func readTable(ctx context.Context, tool Tool, table render.Table, of Ownership) (*saved, error) {
	printed, err := tool.Save(ctx, table)
	if err != nil {
		return nil, err
	}
	s, err := parseSave(table, printed)
	switch {
	case errors.Is(err, errUnprintable):
		return readChains(ctx, tool, table, of)
	case err == nil && bytes.Contains(printed, []byte("incompatible base-chains")):
		return s, s.addJumps(ctx, tool, of)
	}
	return s, err
}

// normalized returns printed rules as they are rendered: the programs print two spaces before the name of an accounting
// object (seen with 1.8.9), but accept one.
func normalized(printed []byte) string {
	return strings.ReplaceAll(string(printed), render.AccountMatch(" "), render.AccountMatch(""))
}

// parseSave reads the output of "iptables-save -t TABLE". No output means that the table does not
// exist yet. An unknown line is an error: with a wrong idea of the kernel's state, the audit would
// repair correct rules.
func parseSave(table render.Table, printed []byte) (*saved, error) {
	s := newSaved(table)
	text := normalized(printed)
	complete, number := true, 0
	for text != "" {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		number++
		switch {
		case line == "":
		case line[0] == '#':
			// The nft variant prints this comment instead of the table, and exits with status 0 (seen with 1.8.9).
			if strings.Contains(line, "is incompatible") {
				return nil, fmt.Errorf("table %s: %w: %s", table, errUnprintable, strings.TrimSpace(strings.TrimLeft(line, "# ")))
			}
		case line == "*"+string(table):
			complete = false
		case line == "COMMIT":
			complete = true
		case complete || !s.add(line):
			return nil, fmt.Errorf("table %s: unknown line %d of iptables-save: %q", table, number, line)
		}
	}
	if !complete {
		return nil, fmt.Errorf("table %s: iptables-save stopped before COMMIT, after line %d", table, number)
	}
	return s, nil
}

// add adds a chain line (":NAME POLICY [packets:bytes]") or a rule line ("-A CHAIN rule"), and returns
// false for any other line.
func (s *saved) add(line string) bool {
	if name, ok := strings.CutPrefix(line, ":"); ok {
		name, _, ok = strings.Cut(name, " ")
		s.declare(name)
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

func (s *saved) declare(chain string) {
	s.chains = append(s.chains, chain)
	s.exists[chain] = true
}

// has reports whether a chain holds a rule with exactly this text.
func (s *saved) has(chain, rule string) bool { return slices.Contains(s.rules[chain], rule) }

// drop forgets all copies of a rule.
func (s *saved) drop(chain, rule string) {
	s.rules[chain] = slices.DeleteFunc(s.rules[chain], func(r string) bool { return r == rule })
}

// object returns a chain as an object, nil if it does not exist.
func (s *saved) object(chain string) *dataplane.Object {
	if !s.exists[chain] {
		return nil
	}
	return &dataplane.Object{
		ID:    render.ChainID(s.table, chain),
		Kind:  dataplane.Owned,
		Body:  strings.Join(s.rules[chain], "\n"),
		Links: dataplane.LinkTo(s.refs(chain)...),
	}
}

// refs lists the chains of the table that a chain's rules jump to, each once, in the order of their
// first mention.
func (s *saved) refs(chain string) []dataplane.ID {
	var refs []dataplane.ID
	var seen map[string]bool // made on the first reference; most chains have none
	for _, rule := range s.rules[chain] {
		target := rules.TargetOf(rule)
		if !s.exists[target] || seen[target] {
			continue
		}
		if seen == nil {
			seen = make(map[string]bool)
		}
		seen[target] = true
		refs = append(refs, render.ChainID(s.table, target))
	}
	return refs
}
