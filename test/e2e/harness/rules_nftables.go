package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// readNFTables adds the listing of nft: every handle, and a line for each object that does not belong to
// iptables (of which iptables-save tells more) and for each element of a set or map.
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

// addNFTElements adds a line for each element, in an order that does not depend on the kernel's. Packets
// add elements, too, to sets made for that; those have an end, and are left out.
func (r *Rules) addNFTElements(holder string, elements []any) error {
	begin := len(r.lines)
	for _, element := range elements {
		if outer, ok := element.(map[string]any); ok {
			if inner, ok := outer["elem"].(map[string]any); ok && inner["expires"] != nil {
				continue
			}
		}
		if err := r.addNFTLine(holder, map[string]any{"element": element}); err != nil {
			return err
		}
	}
	slices.Sort(r.lines[begin:])
	return nil
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

// nftHolder names what an object is in, or is, at the start of lines; and reports whether that belongs to
// iptables.
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

// takeCounters removes the numbers from all counters in a part of a listing, and returns the sum of the
// packets and whether there was a counter.
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
