package network

import (
	"context"
	"regexp"
	"strings"
)

// Rules gives what the rules of the node look like: the listings of both families
// in mode iptables, by the programs of its variant, and of everything in nf_tables; in
// mode ipvs, virtual servers, sets and addresses as well.
func (w *World) Rules(ctx context.Context) (string, error) {
	var all strings.Builder
	for _, words := range w.listings() {
		printed, err := w.Run(ctx, words[0], words[1:]...)
		if err != nil {
			return "", err
		}
		all.WriteString(printed)
	}
	return all.String(), nil
}

func (w *World) listings() [][]string {
	nft := []string{"nft", "list", "ruleset"}
	switch w.options.Mode {
	case "nftables":
		return [][]string{nft}
	case "ipvs":
		return [][]string{nft, {"ipvsadm", "-Ln"}, {"ipset", "list"}, {"ip", "-o", "address", "show"}}
	}
	if w.options.Variant == "legacy" {
		return [][]string{{"iptables-legacy-save"}, {"ip6tables-legacy-save"}, nft}
	}
	return [][]string{{"iptables-nft-save"}, {"ip6tables-nft-save"}}
}

// FindRule gives the first line of the listings that fits, or "".
func (w *World) FindRule(ctx context.Context, pattern *regexp.Regexp) (string, error) {
	text, err := w.Rules(ctx)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if pattern.MatchString(line) {
			return strings.TrimSpace(line), nil
		}
	}
	return "", nil
}
