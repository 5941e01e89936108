// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/ruleset"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// Rules of the form that other programs give theirs, one program per name: NAME.ipset for ipset,
// then NAME.iptables for iptables-restore, or NAME.nft for nft. Each begins with where the form is
// from.
//
// {p1} and the like are the fixture's addresses and ranges, others are in othersWords. A text is
// loaded once per family. In one for both, which has a table inet, the lines with such names appear
// once per family. NAME.each-nft is loaded once per release of nft, whose name replaces {release}.
//
//go:embed others
var others embed.FS

// LoadOthers loads the rules of another program, or loads them again, as that program does: nft
// replaces its table, iptables the content of its chains and the jumps to them, which are the first
// rules again if they are inserted.
func (w *World) LoadOthers(ctx context.Context, name string) error {
	variant := w.iptables()
	loaders := []struct {
		ending  string
		command func(i int, file string) []string
	}{
		{"ipset", func(_ int, file string) []string {
			return []string{"ipset", "restore", "-exist", "-file", file}
		}},
		{"iptables", func(i int, file string) []string {
			return []string{[]string{"iptables-", "ip6tables-"}[i] + variant + "-restore", "-w", "--noflush", file}
		}},
		{"nft", func(_ int, file string) []string { return []string{"nft", "-f", file} }},
		{"each-nft", func(i int, file string) []string { return []string{[]string{"nft", w.nft}[i], "-f", file} }},
	}
	again := slices.Contains(w.others, name)
	found := false
	for _, l := range loaders {
		text, err := others.ReadFile("others/" + name + "." + l.ending)
		if err != nil {
			continue // a program has rules in one or two of them
		}
		found = true
		if l.ending == "each-nft" {
			if w.nft, err = newerNFT(ctx); err != nil {
				return err
			}
		}
		for i, one := range expandOthers(string(text)) {
			if again && l.ending == "iptables" {
				one = rejump(one)
			}
			file := filepath.Join(w.options.Dir, fmt.Sprintf("%s-%d.%s", name, i, l.ending))
			if err := os.WriteFile(file, []byte(one), 0o600); err != nil {
				return err
			}
			words := l.command(i, file)
			if _, err := w.Run(ctx, words[0], words[1:]...); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if !found {
		return fmt.Errorf("there are no rules of %q", name)
	}
	if !again {
		w.others = append(w.others, name)
	}
	var err error
	w.loaded, err = w.otherRules(ctx)
	return err
}

// OthersKept returns an error unless the rules of all other programs are as they were when the last
// of them was loaded.
func (w *World) OthersKept(ctx context.Context) error {
	now, err := w.otherRules(ctx)
	if err != nil {
		return err
	}
	if w.loaded == nil {
		return errors.New("no rules of others were loaded")
	}
	if !slices.Equal(now, w.loaded) {
		return fmt.Errorf("the rules of others have changed: gone are\n%s\nnew are\n%s",
			strings.Join(ruleset.Missing(w.loaded, now), "\n"), strings.Join(ruleset.Missing(now, w.loaded), "\n"))
	}
	return nil
}

// newerNFT returns the nft of another release than the node's, which may not be able to list what that
// one has written.
func newerNFT(ctx context.Context) (string, error) {
	printed, err := exec.CommandContext(ctx, "hack/newer-nft").Output()
	return strings.TrimSpace(string(printed)), err
}

// iptables is the variant of iptables that other programs use: the proxy's, if it has one.
func (w *World) iptables() string {
	if w.options.Variant == "" {
		return "nft"
	}
	return w.options.Variant
}

var placeholder = regexp.MustCompile(`\{([a-z0-9:-]+)\}`)

// othersWords are what a name in braces means in each family, if it is not the fixture's.
var othersWords = map[string][2]string{
	"ip": {"ip", "ip6"}, "4": {"4", "6"}, "6": {"", "6"}, "6:": {"", "inet6:"},
	"type": {"ipv4_addr", "ipv6_addr"}, "icmp": {"icmp", "ipv6-icmp"}, "loopback-range": {"127.0.0.0/8", "::1/128"},
	"docker": {"172.17.0.0/16", "fd17::/64"}, "container": {"172.17.0.2:80", "[fd17::2]:80"},
}

// release stands for the release of nft that loads a text.
const release = "{release}"

// expandOthers returns the texts for each family, one for both, or those for each release of nft.
func expandOthers(text string) []string {
	if strings.Contains(text, release) {
		return []string{strings.ReplaceAll(text, release, "this"), strings.ReplaceAll(text, release, "newer")}
	}
	if !strings.Contains(text, "table inet ") {
		return []string{expandFamily(text, service.IPv4), expandFamily(text, service.IPv6)}
	}
	var all strings.Builder
	for line := range strings.Lines(text) {
		four, six := expandFamily(line, service.IPv4), expandFamily(line, service.IPv6)
		all.WriteString(four)
		if six != four {
			all.WriteString(six)
		}
	}
	return []string{all.String()}
}

func expandFamily(text string, family service.Family) string {
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		name := found[1 : len(found)-1]
		both, ok := othersWords[name]
		if !ok {
			return fixture.Texts(name)[family]
		}
		return both[family]
	})
}

// rejump adds, to a text for iptables-restore, the deletion of the rules that it adds to built-in
// chains.
func rejump(text string) string {
	var all strings.Builder
	for line := range strings.Lines(text) {
		if added := addition.FindStringSubmatch(line); added != nil {
			all.WriteString("-D " + added[1] + "\n")
		}
		all.WriteString(line)
	}
	return all.String()
}

var addition = regexp.MustCompile(`^-[AI] ((?:PREROUTING|INPUT|FORWARD|OUTPUT|POSTROUTING) .*)`)

var (
	// proxysChain matches a line of iptables-save that belongs to a proxy.
	proxysChain = regexp.MustCompile(`(^:|-A |-j |-g )KUBE-(SERVICES|EXTERNAL-SERVICES|NODEPORTS|POSTROUTING|MARK-(MASQ|DROP)|FORWARD|FIREWALL|PROXY-(FIREWALL|CANARY)|KUBELET-CANARY|(SVC|SVL|EXT|FW|SEP)-[A-Z0-9-]+)\b`)
	// untouchedChain matches a built-in chain that a listing shows once anybody has asked for its table.
	untouchedChain = regexp.MustCompile(`^:[A-Z]+ ACCEPT`)
	// proxysTable matches the tables of a proxy.
	proxysTable = regexp.MustCompile(`^(ip6? (kube-proxy|sluice\S*)|inet sluice\S*)$`)
)

// otherRules lists everything that is not a proxy's: what iptables-save prints, each line behind its table, what nft
// lists, and the sets of ipset.
func (w *World) otherRules(ctx context.Context) ([]string, error) {
	var all []string
	for _, program := range []string{"iptables-", "ip6tables-"} {
		text, err := w.Run(ctx, program+w.iptables()+"-save")
		if err != nil {
			return nil, err
		}
		for table, line := range ruleset.IPTables(text) {
			if !proxysChain.MatchString(line) && !untouchedChain.MatchString(line) {
				all = append(all, program+table+" "+line)
			}
		}
	}
	text, err := w.Run(ctx, cmp.Or(w.nft, "nft"), "--stateless", "list", "ruleset")
	if err != nil {
		return nil, err
	}
	all = append(all, ruleset.NFT(text, func(table string) bool { return !ruleset.OfIPTables(table) && !proxysTable.MatchString(table) })...)
	sets, err := w.Run(ctx, "ipset", "-sorted", "save")
	return append(all, strings.Split(sets, "\n")...), err
}
