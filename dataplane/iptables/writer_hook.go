package iptables

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
)

// hookPlace is a hook's identity taken apart: ID{Container: "filter/INPUT",
// Name: "03 -m comment …"} is rule number 3, in chain INPUT of table filter.
type hookPlace struct {
	table  Table
	chain  string
	number int
	// text is the rule as iptables-save prints it behind "-A CHAIN ".
	text string
	id   dataplane.ID
}

func parseHook(id dataplane.ID) (hookPlace, error) {
	table, chain, isHook := strings.Cut(id.Container, "/")
	number, text, hasText := strings.Cut(id.Name, " ")
	n, err := strconv.Atoi(number)
	place := hookPlace{table: Table(table), chain: chain, number: n, text: text, id: id}
	switch place.table {
	case Mangle, Filter, NAT:
		if isHook && hasText && err == nil {
			return place, nil
		}
	}
	return hookPlace{}, fmt.Errorf("object %q in %q is neither a chain nor a hook of this backend", id.Name, id.Container)
}

// object gives the hook as the ledger knows it.
func (h *hookPlace) object() *dataplane.Object {
	return &dataplane.Object{ID: h.id, Kind: dataplane.Owned, Body: h.text, Refs: h.refs()}
}

// refs names the chain that the hook leads to.
func (h *hookPlace) refs() []dataplane.ID {
	return []dataplane.ID{{Container: string(h.table), Name: ruleTarget(h.text)}}
}
