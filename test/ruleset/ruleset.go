// SPDX-License-Identifier: Apache-2.0

// Package ruleset reads listings of rules as lines that can be compared: without counters, and without comments, which
// have the time of day.
package ruleset

import (
	"iter"
	"regexp"
	"slices"
	"strings"
)

// counters are those of a rule ("[12:720] -A ..."), or of a chain (":INPUT ACCEPT [12:720]").
var counters = regexp.MustCompile(`\[\d+:\d+\]`)

// IPTables yields the lines of a listing by iptables-save or ip6tables-save, each with the name of its table.
func IPTables(listing string) iter.Seq2[string, string] {
	return func(yield func(table, line string) bool) {
		table := ""
		for line := range strings.Lines(listing) {
			line = strings.TrimSpace(counters.ReplaceAllLiteralString(line, ""))
			name, begins := strings.CutPrefix(line, "*")
			switch {
			case begins:
				table = name
			case line == "", line == "COMMIT", strings.HasPrefix(line, "#"):
			case !yield(table, line):
				return
			}
		}
	}
}

// NFT returns the lines of a listing by nft --stateless for tables that are kept. A table is given as "ip nat".
func NFT(listing string, kept func(table string) bool) []string {
	var lines []string
	keep := false
	for line := range strings.Lines(listing) {
		line = strings.TrimSuffix(line, "\n")
		if table, begins := strings.CutPrefix(line, "table "); begins {
			table, _, _ = strings.Cut(table, " {")
			keep = kept(table)
		}
		if keep && line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// iptablesTable matches the tables of nf_tables that iptables-save lists.
var iptablesTable = regexp.MustCompile(`^ip6? (filter|nat|mangle|raw|security)$`)

// OfIPTables reports whether iptables-save lists a table, too.
func OfIPTables(table string) bool { return iptablesTable.MatchString(table) }

// Missing returns the lines of a part that the whole does not have, or not in this order.
func Missing(part, whole []string) []string {
	var missing []string
	for _, line := range part {
		if at := slices.Index(whole, line); at >= 0 {
			whole = whole[at+1:]
		} else {
			missing = append(missing, line)
		}
	}
	return missing
}
