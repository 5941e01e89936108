package harness

import (
	"bufio"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Rules is everything the packet filter of one namespace holds in the form of iptables, both families.
//
// Writing a rule again, even the same one, leaves two traces: its counters start at zero, and it has
// another handle, the number by which the kernel tells rules apart. That is how a test sees a write that
// changed no text. Counters are kept by both variants of the tools, but grow back with traffic; handles
// never come back, but only the nf_tables variant has them.
type Rules struct {
	lines   []string            // every line in order, without counters
	packets map[string]uint64   // by line; lines that occur twice are added up
	handles map[string][]uint64 // by chain, as at the start of its lines; of its rules in order
}

// counters are at the start of a rule ("[12:720] -A ...") and at the end of a chain
// (":INPUT ACCEPT [12:720]").
var counters = regexp.MustCompile(`\[(\d+):\d+\]`)

// SaveRules reads the rules of a host.
func SaveRules(h *Host) (Rules, error) {
	r := Rules{packets: make(map[string]uint64), handles: make(map[string][]uint64)}
	for _, source := range []struct {
		program string
		family  uint8
	}{{"iptables-save", unix.AF_INET}, {"ip6tables-save", unix.AF_INET6}} {
		program := source.program
		handles, err := ruleHandles(h, source.family)
		if err != nil {
			return Rules{}, err
		}
		for chain, ofChain := range handles {
			r.handles[program+" "+chain.table+" -A "+chain.name] = ofChain
		}
		path, err := exec.LookPath(program)
		if err != nil {
			return Rules{}, fmt.Errorf("%w; install it (Debian package iptables)", err)
		}
		printed, err := h.Output(exec.Command(path, "-c"))
		if err != nil {
			return Rules{}, fmt.Errorf("%s -c in netns %s: %w", program, h.Name(), err)
		}
		if err := r.read(program, string(printed)); err != nil {
			return Rules{}, err
		}
	}
	return r, nil
}

func (r *Rules) read(program, printed string) error {
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
		if found := counters.FindStringSubmatch(line); found != nil {
			packets, err := strconv.ParseUint(found[1], 10, 64)
			if err != nil {
				return fmt.Errorf("%s: %q: %w", program, line, err)
			}
			r.packets[text] += packets
		}
	}
	return scanner.Err()
}

// Containing returns the lines that contain the text.
func (r Rules) Containing(text string) []string {
	var found []string
	for _, line := range r.lines {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// ownChain matches rules in chains that belong to one Service, by kube-proxy's naming: a kind and sixteen
// characters. Chains that several Services share are written whenever one of them changes.
var ownChain = regexp.MustCompile(`^\S+ \S+ -A KUBE-(SVC|SVL|EXT|FW|SEP)-[A-Z2-7]{16}\b`)

// OfService keeps the rules in the chains that belong to one Service of the test namespace.
func (r Rules) OfService(name string) Rules {
	own := Rules{packets: make(map[string]uint64), handles: make(map[string][]uint64)}
	for _, line := range r.lines {
		chain := ownChain.FindString(line)
		if chain == "" || !strings.Contains(line, testNamespace+"/"+name+":") {
			continue
		}
		own.lines = append(own.lines, line)
		own.packets[line] = r.packets[line]
		if handles, found := r.handles[chain]; found {
			own.handles[chain] = handles
		}
	}
	return own
}

// Untouched returns an error when r, read after before, differs from it in any way but in counters that
// have grown.
func (r Rules) Untouched(before Rules) error {
	if !slices.Equal(r.lines, before.lines) {
		return fmt.Errorf("the rules changed:%s", difference(before.lines, r.lines))
	}
	var reset []string
	for _, line := range r.lines {
		if was, now := before.packets[line], r.packets[line]; now < was {
			reset = append(reset, fmt.Sprintf("\n\t%d packets, then %d: %s", was, now, line))
		}
	}
	if len(reset) > 0 {
		slices.Sort(reset)
		return fmt.Errorf("%d rules were written again:%s", len(reset), strings.Join(slices.Compact(reset), ""))
	}
	for chain, was := range before.handles {
		if now := r.handles[chain]; !slices.Equal(was, now) {
			return fmt.Errorf("a chain was written again: %s had rules with handles %d, then %d", chain, was, now)
		}
	}
	return nil
}

// Counted returns how many rules have counted packets. A test whose traffic counted nothing would see no
// reset either.
func (r Rules) Counted() int {
	count := 0
	for line, packets := range r.packets {
		if packets > 0 && strings.Contains(line, " -A ") {
			count++
		}
	}
	return count
}

// difference lists lines that only one side has, and says so when only their order differs.
func difference(before, after []string) string {
	var text strings.Builder
	for _, line := range before {
		if !slices.Contains(after, line) {
			text.WriteString("\n\t- " + line)
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			text.WriteString("\n\t+ " + line)
		}
	}
	if text.Len() == 0 {
		return " same lines in another order or number"
	}
	return text.String()
}
