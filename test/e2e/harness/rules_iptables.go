package harness

import (
	"bufio"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// counters are at the start of a rule ("[12:720] -A ...") and at the end of a chain
// (":INPUT ACCEPT [12:720]").
var counters = regexp.MustCompile(`\[(\d+):\d+\]`)

// readIPTables adds what iptables-save prints with counters, or ip6tables-save.
func (r *Rules) readIPTables(program, printed string) error {
	table := ""
	scanner := bufio.NewScanner(strings.NewReader(printed))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line := scanner.Text()
		switch {
		case line == "" || strings.HasPrefix(line, "#") || line == "COMMIT":
			continue // the comments carry the time of day
		case strings.HasPrefix(line, "*"):
			table = program + " " + line[1:]
			continue
		}
		text := table + " " + strings.TrimSpace(counters.ReplaceAllLiteralString(line, ""))
		r.lines = append(r.lines, text)
		if strings.HasPrefix(line, ":") {
			continue // a chain's counters say nothing about a rule
		}
		found := counters.FindStringSubmatch(line)
		if found == nil {
			return fmt.Errorf("%s: no counters in %q", program, line)
		}
		packets, err := strconv.ParseUint(found[1], 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %q: %w", program, line, err)
		}
		r.packets[text] += packets
	}
	return scanner.Err()
}

// iptablesChain returns the start of the lines of a chain that belongs to iptables, and whether a table of
// nf_tables does.
func iptablesChain(family, table, chain string) (start string, does bool) {
	program := map[string]string{"ip": "iptables-save", "ip6": "ip6tables-save"}[family]
	switch table {
	case "filter", "nat", "mangle", "raw", "security":
		return program + " " + table + " -A " + chain, program != ""
	default:
		return "", false
	}
}
