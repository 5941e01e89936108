// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/dataplane/iptables/rules"
	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/service"
)

// Detection is the choice of a variant.
type Detection struct {
	Variant Variant
	// Reason describes in a few words why the variant was chosen.
	Reason string
	// Leftovers describes rules for Services in the other variant. They still affect packets: see
	// kubernetes/kubernetes issue 71305.
	Leftovers []string
	// Unused describes the content of the other variant, empty for none. Packets pass both
	// variants: each can drop them.
	Unused string
}

// Auto makes Detect choose.
const Auto = "auto"

// Detect chooses the variant for all families of the node, as the wrappers in kube-proxy's image do
// (kubernetes-sigs/iptables-wrappers). The kubelet marks the variant that it uses by a chain in
// mangle, so that all programs can agree. Without a mark, the variant with more rules of
// Kubernetes is chosen. If both have the same number, it is the variant of the iptables in PATH, which
// the node's other programs use: if a firewall's policy DROP for FORWARD were in one variant and
// Sluice's ACCEPT rules in the other, the kernel would forward nothing.
//
// want is "auto", "legacy" or "nft". The last two decide the choice, but Detect still searches the
// other variant for leftovers. Anything else is an error, and so is a node on which no variant can
// be used.
func Detect(ctx context.Context, want string, families []service.Family) (Detection, error) {
	switch want {
	case Auto, string(NFT), string(Legacy):
	default:
		return Detection{}, fmt.Errorf("iptables variant %q: must be auto, legacy or nft", want)
	}
	var found []holding
	var failed []error
	for _, variant := range [...]Variant{NFT, Legacy} {
		h, err := survey(ctx, variant, families)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		found = append(found, h)
	}
	if ctx.Err() != nil {
		return Detection{}, context.Cause(ctx)
	}
	return choose(want, found, usual(ctx, families), errors.Join(failed...))
}

// usual returns the variant of the iptables in PATH, empty if there is none.
func usual(ctx context.Context, families []service.Family) Variant {
	for _, family := range families {
		if found, err := programsNamed(ctx, baseName(family), 0); err == nil {
			return found.variant
		}
	}
	return ""
}

// holding is the content of a variant, in all requested families.
type holding struct {
	variant Variant
	// marked is set if the kubelet's mark was found.
	marked bool
	// rules counts the rules in chains named KUBE-…, services the chains of Services.
	rules, services int
	// ports counts the chains of Service ports, which only iptables mode has.
	ports int
	// all counts the rules of all programs.
	all int
	// drops names the built-in chains with the policy DROP, as "FORWARD of filter".
	drops []string
	// marks are the bits that rules of other programs set in packet marks, by their chains.
	marks map[string]uint32
}

// survey lists everything that one variant holds. It runs iptables-save without a table's name,
// which prints the tables that exist and creates none; go-iptables always names a table, which
// would make the legacy variant create it.
func survey(ctx context.Context, variant Variant, families []service.Family) (holding, error) {
	h := holding{variant: variant}
	for _, family := range families {
		found, err := findPrograms(ctx, family, variant, 0)
		if err != nil {
			return holding{}, err
		}
		printed, err := exec.CommandContext(ctx, found.save).Output()
		if err != nil {
			words := ""
			if exit, ok := errors.AsType[*exec.ExitError](err); ok && len(exit.Stderr) > 0 {
				words = ": " + strings.TrimSpace(string(exit.Stderr))
			}
			return holding{}, fmt.Errorf("list the rules of the %s variant of iptables: %s: %w%s",
				variant, found.save, err, words)
		}
		h.count(string(printed))
		tool := &Exec{family: family, programs: found, started: func(int) {}}
		for _, table := range render.Tables {
			if !isUnprintable(table, printed) {
				continue
			}
			text, err := tool.legible(ctx, table)
			if err != nil {
				return holding{}, fmt.Errorf("list the rules of the %s variant of iptables in table %s: %w", variant, table, err)
			}
			h.count(text)
		}
	}
	return h, nil
}

// count adds what iptables-save printed.
func (h *holding) count(printed string) {
	table := ""
	for line := range strings.Lines(printed) {
		if added, ok := strings.CutPrefix(line, "-A "); ok {
			h.all++
			chain, rule, _ := strings.Cut(strings.TrimSuffix(added, "\n"), " ")
			h.countMark(chain, rule)
		}
		switch {
		case strings.HasPrefix(line, "*"):
			table = strings.TrimSpace(line[1:])
		case strings.HasPrefix(line, ":KUBE-IPTABLES-HINT "), strings.HasPrefix(line, ":KUBE-KUBELET-CANARY "):
			h.marked = h.marked || table == string(render.Mangle)
		case strings.HasPrefix(line, ":KUBE-SVC-"), strings.HasPrefix(line, ":KUBE-SERVICES "):
			h.services++
			if len(line) > len(":KUBE-SVC-")+portChars && line[len(":KUBE-SVC-")+portChars] == ' ' {
				h.ports++
			}
		case strings.HasPrefix(line, "-A KUBE-"):
			h.rules++
		case strings.HasPrefix(line, ":") && strings.Contains(line, " DROP ["):
			chain, _, _ := strings.Cut(line[1:], " ")
			h.drops = append(h.drops, chain+" of "+table)
		}
	}
}

// countMark counts the mark bits that a rule of another program sets. It ignores the chain in which
// both proxies mark packets.
func (h *holding) countMark(chain, rule string) {
	if chain == render.ChainMarkMasq || rules.TargetOf(rule) != "MARK" {
		return
	}
	target := rules.Parse(rule).Target
	set := target.Option("--set-xmark")
	if set == nil {
		set = target.Option("--set-mark")
	}
	if set == nil {
		return
	}
	bits, _, err := set.Mark()
	if err != nil || bits == 0 {
		return
	}
	if h.marks == nil {
		h.marks = make(map[string]uint32)
	}
	h.marks[chain] |= bits
}

// portChars is the length of the hash in the name of a Service port's chain.
const portChars = 16

// content describes the rules and DROP policies of a variant, empty for none.
func (h *holding) content() string {
	var parts []string
	if h.all > 0 {
		parts = append(parts, plural.Of(h.all, "rule"))
	}
	if len(h.drops) > 0 {
		parts = append(parts, "policy DROP in "+strings.Join(h.drops, ", "))
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("the %s variant of iptables contains %s", h.variant, strings.Join(parts, " and "))
}

// Former describes the rules of a variant in one family before the proxy starts.
type Former struct {
	Variant Variant
	Family  service.Family
	// ServicePorts counts the chains of Service ports. IPVS mode has none.
	ServicePorts int
	// ForwardDropped is set if the policy of FORWARD is DROP.
	ForwardDropped bool
	// marks are the bits that rules of other programs set in packet marks, by their chains.
	marks map[string]uint32
}

// Marking returns the chains of other programs with rules that set a bit of the packet mark.
func (f Former) Marking(bit uint) []string {
	var chains []string
	for _, chain := range slices.Sorted(maps.Keys(f.marks)) {
		if f.marks[chain]&(1<<bit) != 0 {
			chains = append(chains, chain)
		}
	}
	return chains
}

// String describes the rules in a few words.
func (f Former) String() string {
	return fmt.Sprintf("%s %s: chains of %d Service ports", f.Variant, f.Family, f.ServicePorts)
}

// FindFormer lists the rules of all variants and families. It leaves out those that it cannot list,
// for example because their programs are not installed.
func FindFormer(ctx context.Context) []Former {
	var all []Former
	for _, variant := range [...]Variant{NFT, Legacy} {
		for _, family := range service.Families {
			h, err := survey(ctx, variant, []service.Family{family})
			if err != nil {
				continue
			}
			all = append(all, Former{Variant: variant, Family: family, ServicePorts: h.ports,
				ForwardDropped: slices.Contains(h.drops, "FORWARD of filter"), marks: h.marks})
		}
	}
	return all
}

// choose decides between the variants that can be used. usual is the variant of the iptables in
// PATH, if known; missing is the reason why the others cannot be used.
func choose(want string, found []holding, usual Variant, missing error) (Detection, error) {
	candidates := slices.DeleteFunc(slices.Clone(found), func(h holding) bool { return want != Auto && want != string(h.variant) })
	if len(candidates) == 0 {
		return Detection{}, missing
	}
	// MaxFunc returns the first of equal candidates.
	chosen := slices.MaxFunc(candidates, func(a, b holding) int { return slices.Compare(a.score(usual), b.score(usual)) })
	d := Detection{Variant: chosen.variant, Reason: reason(want, chosen, found, usual)}
	for _, h := range found {
		if h.variant == chosen.variant {
			continue
		}
		d.Unused = h.content()
		if h.services > 0 {
			d.Leftovers = append(d.Leftovers, fmt.Sprintf(
				"the %s variant of iptables contains %s of Services, and the %s variant is used; "+
					"packets pass both: remove them with a cleanup of that variant",
				h.variant, plural.Of(h.services, "chain"), chosen.variant))
		}
	}
	return d, nil
}

// score ranks a variant: one that the kubelet uses comes first, then the one with more rules of
// Kubernetes, then that of the iptables in PATH.
func (h holding) score(usual Variant) []int {
	switch {
	case h.marked:
		return []int{1}
	case h.variant == usual:
		return []int{0, h.rules, 1}
	default:
		return []int{0, h.rules, 0}
	}
}

// reason describes why a variant was chosen.
func reason(want string, chosen holding, found []holding, usual Variant) string {
	const balanced = "neither variant holds more rules of Kubernetes, and "
	switch {
	case want != Auto:
		return "asked for"
	case chosen.marked:
		return "the kubelet uses it"
	case len(found) == 1:
		return "the other variant cannot be used here"
	case found[0].rules != found[1].rules:
		return "it holds more rules of Kubernetes"
	case usual != "":
		return balanced + "the iptables in PATH is of this one"
	default:
		return balanced + "no iptables in PATH reports its variant"
	}
}
