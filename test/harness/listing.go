package harness

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// packages are the Debian packages of the programs that list rules.
var packages = map[string]string{"iptables-save": "iptables", "ip6tables-save": "iptables", "nft": "nftables"}

// tool prepares a run of one of those programs.
func tool(program string, args ...string) (*exec.Cmd, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("%w; install it (Debian package %s)", err, packages[program])
	}
	return exec.Command(path, args...), nil
}

// printed runs one of those programs inside a host and returns what it prints.
func printed(h *Host, program string, args ...string) ([]byte, error) {
	cmd, err := tool(program, args...)
	if err != nil {
		return nil, err
	}
	output, err := h.Output(cmd)
	if err != nil {
		return nil, fmt.Errorf("%s %s in netns %s: %w", program, strings.Join(args, " "), h.Name(), err)
	}
	return output, nil
}

// counters are at the start of a rule ("[12:720] -A ...") and at the end of a chain (":INPUT ACCEPT
// [12:720]").
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

// iptablesChain returns the beginning of the lines of a chain, and whether its table of nf_tables
// belongs to iptables.
func iptablesChain(family, table, chain string) (start string, does bool) {
	program := map[string]string{"ip": "iptables-save", "ip6": "ip6tables-save"}[family]
	switch table {
	case "filter", "nat", "mangle", "raw", "security":
		return program + " " + table + " -A " + chain, program != ""
	default:
		return "", false
	}
}

// readNFTables adds the listing of nft: every handle, and a line for each object that does not
// belong to iptables (of which iptables-save tells more) and for each element of a set or map.
func (r *Rules) readNFTables(listing []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(listing))
	decoder.UseNumber()
	var all struct {
		Objects []map[string]map[string]any `json:"nftables"`
	}
	if err := decoder.Decode(&all); err != nil {
		return err
	}
	for _, object := range all.Objects {
		for kind, attributes := range object {
			if kind == "metainfo" {
				continue
			}
			if err := r.readNFTObject(kind, attributes); err != nil {
				return fmt.Errorf("%s %v: %w", kind, attributes, err)
			}
		}
	}
	return nil
}

func (r *Rules) readNFTObject(kind string, attributes map[string]any) error {
	holder, iptables := nftHolder(kind, attributes)
	number, _ := attributes["handle"].(json.Number)
	handle, err := strconv.ParseUint(number.String(), 10, 64)
	if err != nil {
		return fmt.Errorf("its handle: %w", err)
	}
	r.handles[holder] = append(r.handles[holder], handle)
	if iptables {
		return nil
	}
	elements, _ := attributes["elem"].([]any)
	for _, told := range []string{"elem", "family", "table", "chain", "name", "handle"} {
		delete(attributes, told)
	}
	if err := r.addNFTLine(holder, map[string]any{kind: attributes}); err != nil {
		return err
	}
	return r.addNFTElements(holder, elements)
}

// addNFTElements adds a line for each element, in an order that does not depend on the kernel's. It
// leaves out elements with a timeout, which packets add.
func (r *Rules) addNFTElements(holder string, elements []any) error {
	begin := len(r.lines)
	for _, element := range elements {
		if passes(element) {
			continue
		}
		if err := r.addNFTLine(holder, map[string]any{"element": element}); err != nil {
			return err
		}
	}
	slices.Sort(r.lines[begin:])
	return nil
}

// passes reports whether an element of a set or a map has a timeout.
func passes(element any) bool {
	if pair, ok := element.([]any); ok && len(pair) > 0 {
		element = pair[0] // a map's: the key and the data
	}
	outer, _ := element.(map[string]any)
	inner, _ := outer["elem"].(map[string]any)
	return inner["expires"] != nil
}

func (r *Rules) addNFTLine(holder string, object map[string]any) error {
	packets, counts := takeCounters(object)
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	line := holder + " " + string(text)
	r.lines = append(r.lines, line)
	if counts {
		r.packets[line] += packets
	}
	return nil
}

// nftHolder returns the beginning of an object's lines, and whether it belongs to iptables.
func nftHolder(kind string, attributes map[string]any) (holder string, iptables bool) {
	text := func(attribute string) string { value, _ := attributes[attribute].(string); return value }
	family, table, name := text("family"), text("table"), text("name")
	switch kind {
	case "table":
		_, iptables = iptablesChain(family, name, "")
		return "nft " + family + " " + name, iptables
	case "rule":
		kind, name = "chain", text("chain")
	}
	if holder, iptables := iptablesChain(family, table, name); iptables {
		return holder, true
	}
	return "nft " + family + " " + table + " " + kind + " " + name, false
}

// takeCounters removes the numbers from all counters in a part of a listing, and returns the sum of
// the packets and whether there was a counter.
func takeCounters(part any) (packets uint64, counts bool) {
	switch part := part.(type) {
	case []any:
		for _, member := range part {
			sum, found := takeCounters(member)
			packets, counts = packets+sum, counts || found
		}
	case map[string]any:
		for key, member := range part {
			sum, found := takeCounter(key, member)
			if !found {
				sum, found = takeCounters(member)
			}
			packets, counts = packets+sum, counts || found
		}
	}
	return packets, counts
}

// takeCounter does that for one attribute, which need not be a counter.
func takeCounter(key string, attribute any) (packets uint64, is bool) {
	counter, _ := attribute.(map[string]any)
	number, numbered := counter["packets"].(json.Number)
	if key != "counter" || !numbered {
		return 0, false
	}
	delete(counter, "packets")
	delete(counter, "bytes")
	packets, err := strconv.ParseUint(number.String(), 10, 64)
	return packets, err == nil
}
