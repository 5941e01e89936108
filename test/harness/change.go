// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"encoding/hex"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/test/netnstest"
)

// changeKinds describes each message of nf_tables about a change: its verb, the kind of object, and
// which attribute is the object's name, or 0. (The first attribute is the table's name.)
var changeKinds = map[uint16]struct {
	verb, kind string
	name       uint16
}{
	unix.NFT_MSG_NEWTABLE:     {"add", "table", 0},
	unix.NFT_MSG_DELTABLE:     {"delete", "table", 0},
	unix.NFT_MSG_NEWCHAIN:     {"add", "chain", unix.NFTA_CHAIN_NAME},
	unix.NFT_MSG_DELCHAIN:     {"delete", "chain", unix.NFTA_CHAIN_NAME},
	unix.NFT_MSG_NEWRULE:      {"add", "rule", unix.NFTA_RULE_CHAIN},
	unix.NFT_MSG_DELRULE:      {"delete", "rule", unix.NFTA_RULE_CHAIN},
	unix.NFT_MSG_NEWSET:       {"add", "set", unix.NFTA_SET_NAME},
	unix.NFT_MSG_DELSET:       {"delete", "set", unix.NFTA_SET_NAME},
	unix.NFT_MSG_NEWSETELEM:   {"add", "element", unix.NFTA_SET_ELEM_LIST_SET},
	unix.NFT_MSG_DELSETELEM:   {"delete", "element", unix.NFTA_SET_ELEM_LIST_SET},
	unix.NFT_MSG_NEWOBJ:       {"add", "object", unix.NFTA_OBJ_NAME},
	unix.NFT_MSG_DELOBJ:       {"delete", "object", unix.NFTA_OBJ_NAME},
	unix.NFT_MSG_NEWFLOWTABLE: {"add", "flowtable", flowtableName},
	unix.NFT_MSG_DELFLOWTABLE: {"delete", "flowtable", flowtableName},
}

// flowtableName is NFTA_FLOWTABLE_NAME of linux/netfilter/nf_tables.h.
const flowtableName = 2

// changeFamilies are the names of nf_tables' families (NFPROTO_* in linux/netfilter.h).
var changeFamilies = map[uint8]string{1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}

// spellChanges returns the changes of a message in words, or none.
func spellChanges(message syscall.NetlinkMessage) ([]string, error) {
	told, is := changeKinds[message.Header.Type&0xff]
	if !is {
		return nil, nil
	}
	attributes, err := netnstest.Attributes(message.Data[nl.SizeofNfgenmsg:])
	if err != nil {
		return nil, err
	}
	words := []string{told.verb, told.kind, changeFamilies[message.Data[0]], nl.BytesToString(attributes[1])}
	if told.name != 0 {
		words = append(words, nl.BytesToString(attributes[told.name]))
	}
	where := strings.Join(words, " ")
	if told.kind != "element" {
		return []string{where}, nil
	}
	elements, err := nl.ParseRouteAttr(attributes[unix.NFTA_SET_ELEM_LIST_ELEMENTS])
	if err != nil {
		return nil, err
	}
	var changes []string
	for _, element := range elements {
		text, err := spellElement(element.Value)
		if err != nil {
			return nil, err
		}
		changes = append(changes, where+" "+text)
	}
	return changes, nil
}

func spellElement(element []byte) (string, error) {
	attributes, err := netnstest.Attributes(element)
	if err != nil {
		return "", err
	}
	key, err := netnstest.Attributes(attributes[unix.NFTA_SET_ELEM_KEY])
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(spellKey(key[unix.NFTA_DATA_VALUE]) + " " + comment(attributes[unix.NFTA_SET_ELEM_USERDATA])), nil
}

// spellKey returns a key in hexadecimal. Each part of a concatenation takes whole words of four
// bytes.
func spellKey(key []byte) string {
	var words []string
	for word := range slices.Chunk(key, 4) {
		words = append(words, hex.EncodeToString(word))
	}
	return strings.Join(words, " ")
}

// comment finds the comment in what a program has stored with an element: items with a byte for
// their kind, which is 0 for a comment, and a byte for their length (libnftnl's udata.h).
func comment(stored []byte) string {
	for len(stored) >= 2 {
		kind, size := stored[0], int(stored[1])
		if len(stored) < 2+size {
			return ""
		}
		if kind == 0 {
			return nl.BytesToString(stored[2 : 2+size])
		}
		stored = stored[2+size:]
	}
	return ""
}
