// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/internal/netlink"
)

// Statements prints the messages of a transaction in order, each as one statement for "nft -f". A message that nft's
// language or this package cannot express is a comment.
func Statements(transaction iter.Seq[netlink.Message]) string {
	var out strings.Builder
	for m := range transaction {
		text, err := statement(m)
		if err != nil {
			text = "# " + text
		}
		out.WriteString(printable(text) + "\n")
	}
	return out.String()
}

// nouns are the objects of messages. There are three messages for each: the first adds it, and the last deletes it.
var nouns = [...]string{"table", "chain", "rule", "set", "element"}

// statement prints one message. With an error, the text is a description and not a statement.
func statement(m netlink.Message) (text string, err error) {
	n, _ := m.Netfilter(unix.NFNL_SUBSYS_NFTABLES)
	at := slices.IndexFunc(dialects[:], func(d *dialect) bool { return d.Protocol == n.Family })
	if at < 0 || int(n.Kind/3) >= len(nouns) {
		return fmt.Sprintf("message %d of the family %d", n.Kind, n.Family), errors.ErrUnsupported
	}
	attr := func(kind uint16) netlink.Attr { return netlink.Find(n.Attrs, kind) }
	d, noun, adds := dialects[at], nouns[n.Kind/3], n.Kind%3 == 0
	// NFTA_RULE_CHAIN and NFTA_SET_ELEM_LIST_SET are the same attribute as NFTA_SET_NAME.
	table, name := d.Name+" "+attr(unix.NFTA_TABLE_NAME).Text(), attr(unix.NFTA_SET_NAME).Text()
	var lines []string
	switch {
	case noun == "table":
		name, lines = "", tableLines(n.Attrs)
	case noun == "chain":
		name = attr(unix.NFTA_CHAIN_NAME).Text()
		lines, err = chainLines(d, &dataplane.Object{Body: string(rules.FoundChain(n.Attrs))})
	case noun == "set" && adds:
		noun, lines, err = setLines(d, name, string(n.Attrs))
	case noun == "element":
		text, err = elementsText(d, name, attr(unix.NFTA_SET_ELEM_LIST_ELEMENTS).Data)
	case noun == "rule" && adds:
		r := rules.DecodeRule(n.Attrs)
		text, err = ruleText(d, &r)
	case noun == "rule" && attr(unix.NFTA_RULE_HANDLE).Data != nil:
		text = fmt.Sprintf("handle %d", attr(unix.NFTA_RULE_HANDLE).Uint64())
	case noun == "rule" && name == "":
		return "flush table " + table, nil
	case noun == "rule":
		return "flush chain " + table + " " + name, nil
	}
	if len(lines) > 0 {
		text = "{ " + strings.TrimSuffix(strings.Join(lines, "; "), ";") + "; }"
	}
	verb := map[bool]string{true: "add", false: "delete"}[adds]
	words := slices.DeleteFunc([]string{verb, noun, table, name, text}, func(word string) bool { return word == "" })
	return strings.Join(words, " "), err
}

// tableUserData is NFTA_TABLE_USERDATA (Linux 5.10).
const tableUserData = 6

func tableLines(attrs []byte) (lines []string) {
	if netlink.Find(attrs, unix.NFTA_TABLE_FLAGS).Uint32() == unix.NFT_TABLE_F_DORMANT {
		lines = append(lines, "flags dormant")
	}
	if comment := rules.Comment(netlink.Find(attrs, tableUserData).Data); comment != "" {
		lines = append(lines, fmt.Sprintf("comment %q", comment))
	}
	return lines
}

// elementsText prints a list of elements in braces. Of an element without a body it prints the key.
func elementsText(d *dialect, set string, list []byte) (string, error) {
	var texts []string
	var without error
	for attr := range netlink.Attrs(list) {
		o := ParseElement(ContainerOf(set), attr.Data)
		text, err := elementText(d, set, &o)
		texts, without = append(texts, text), cmp.Or(without, err)
	}
	return "{ " + strings.Join(texts, ", ") + " }", without
}
