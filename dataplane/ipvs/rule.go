package ipvs

import (
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
)

// rule puts a rule together, as iptables-save (1.8.9, both variants) prints it
// behind "-A CHAIN ". Empty parts are left out. The parts come in its order:
// addresses, input interface and protocol first, then matches as written, then the
// target.
func rule(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), " ")
}

// comment is the match that does nothing. The tools quote what is not one plain
// word; all comments of ours have blanks.
func comment(text string) string { return `-m comment --comment "` + text + `"` }

// chain is a chain with its rules. It refers to the chains that they jump to and to
// the sets that they ask.
func chain(table, name string, rules ...string) dataplane.Object {
	o := dataplane.Object{
		ID:   dataplane.ID{Container: table, Name: name},
		Kind: dataplane.Owned,
		Body: strings.Join(rules, "\n"),
	}
	for _, text := range rules {
		o.Refs = appendRefs(o.Refs, table, text)
	}
	return o
}

// appendRefs appends what a rule needs and the list does not have.
func appendRefs(refs []dataplane.ID, table, text string) []dataplane.ID {
	words := strings.Fields(text)
	for i := 1; i < len(words); i++ {
		var ref dataplane.ID
		switch {
		case words[i-1] == "--match-set":
			ref = SetID(words[i])
		case words[i-1] == "-j" && strings.HasPrefix(words[i], "KUBE-"):
			ref = dataplane.ID{Container: table, Name: words[i]}
		default:
			continue
		}
		if !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	return refs
}
