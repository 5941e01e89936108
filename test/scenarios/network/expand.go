package network

import (
	"path/filepath"
	"strings"
)

// expand replaces what stands for a world's own in a text:
//
//	$sluice                the program
//	$dir                   the directory of the scenario
//	$state                 the directory of the record of kernel settings
//	$iptables, $ip6tables  iptables of the variant; $iptables-save and so on follow
//
// Every other $ stays.
func (w *World) expand(text string) string {
	variant := w.options.Variant
	if variant == "" {
		variant = "nft"
	}
	return strings.NewReplacer(
		"$sluice", w.options.Binary, "$dir", w.options.Dir, "$state", w.stateDir(),
		"$iptables", "iptables-"+variant, "$ip6tables", "ip6tables-"+variant,
	).Replace(text)
}

func (w *World) stateDir() string { return filepath.Join(w.options.Dir, "state") }

func (w *World) expandAll(words []string) []string {
	var all []string
	for _, word := range words {
		all = append(all, w.expand(word))
	}
	return all
}
