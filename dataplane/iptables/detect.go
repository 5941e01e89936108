package iptables

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/service"
)

// Detection is the choice of a variant.
type Detection struct {
	Variant Variant
	// Reason says in a few words what decided.
	Reason string
	// Leftovers describes rules for Services that the other variant holds.
	// They take part in deciding about packets: see kubernetes/kubernetes
	// issue 71305.
	Leftovers []string
	// Beside says what else the other variant holds, which packets pass as well:
	// what either of the two drops is dropped. Empty when that is nothing.
	Beside string
}

// Auto asks Detect to choose.
const Auto = "auto"

// Detect chooses the variant for all families of the node, as the wrappers in
// kube-proxy's image do (kubernetes-sigs/iptables-wrappers): the kubelet marks
// the variant it uses by a chain in mangle, so everybody on the node can agree.
// Without a mark, the variant that holds more of Kubernetes' rules is chosen. When
// neither does, it is that of the iptables in PATH, which the node's other programs
// use: were a firewall's policy DROP for FORWARD in the one and our ACCEPTs in the
// other, nothing would be forwarded.
//
// want is "auto", "legacy" or "nft"; the last two decide the choice, but the
// other variant is still searched for leftovers. Anything else is an error, and
// so is a node where no variant can be used.
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

// usual is the variant of the iptables in PATH; empty when there is none, or it does
// not say.
func usual(ctx context.Context, families []service.Family) Variant {
	for _, family := range families {
		if found, err := programsNamed(ctx, baseName(family)); err == nil {
			return found.variant
		}
	}
	return ""
}

// holding is what a variant holds of Kubernetes' things, in all families.
type holding struct {
	variant Variant
	// marked is set when the kubelet's mark was found.
	marked bool
	// rules and services count rules in chains named KUBE-…, and chains of
	// Services.
	rules, services int
	// ports counts the chains of Service ports as iptables mode has them.
	ports int
	// all counts the rules of everybody; drops are the built-in chains with the
	// policy DROP, as "FORWARD of filter".
	all   int
	drops []string
}

// survey looks at everything that one variant holds.
func survey(ctx context.Context, variant Variant, families []service.Family) (holding, error) {
	h := holding{variant: variant}
	for _, family := range families {
		found, err := findPrograms(ctx, family, variant)
		if err != nil {
			return holding{}, err
		}
		// Without a table's name, iptables-save prints the tables that exist
		// and makes none; naming one would make the legacy variant create it.
		printed, err := exec.CommandContext(ctx, found.save).Output()
		if err != nil {
			return holding{}, fmt.Errorf("list what the %s variant of iptables holds: %s: %w%s",
				variant, found.save, err, wordsIn(err))
		}
		h.count(string(printed))
	}
	return h, nil
}

// count adds what iptables-save printed.
func (h *holding) count(printed string) {
	table := ""
	for line := range strings.Lines(printed) {
		if strings.HasPrefix(line, "-A ") {
			h.all++
		}
		switch {
		case strings.HasPrefix(line, "*"):
			table = strings.TrimSpace(line[1:])
		case strings.HasPrefix(line, ":KUBE-IPTABLES-HINT "), strings.HasPrefix(line, ":KUBE-KUBELET-CANARY "):
			h.marked = h.marked || table == string(Mangle)
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

// beside says what a variant that is not used holds; empty for nothing.
func (h *holding) beside() string {
	var parts []string
	if h.all > 0 {
		parts = append(parts, plural(h.all, "rule"))
	}
	if len(h.drops) > 0 {
		parts = append(parts, "policy DROP in "+strings.Join(h.drops, ", "))
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("the %s variant of iptables holds %s", h.variant, strings.Join(parts, " and "))
}

// portChars is the length of the hash in the name of a Service port's chain.
const portChars = 16

// Former is what a variant holds of iptables mode in one family, before the proxy
// starts.
type Former struct {
	Variant Variant
	Family  service.Family
	// ServicePorts counts the chains of Service ports; those of IPVS mode have none.
	ServicePorts int
	// ForwardDropped says that the policy for what is forwarded is DROP.
	ForwardDropped bool
}

// FindFormer looks at all variants and families. What cannot be listed, for example
// because there are no programs for it, is left out.
func FindFormer(ctx context.Context) []Former {
	var all []Former
	for _, variant := range [...]Variant{NFT, Legacy} {
		for _, family := range service.Families {
			h, err := survey(ctx, variant, []service.Family{family})
			if err != nil {
				continue
			}
			all = append(all, Former{Variant: variant, Family: family, ServicePorts: h.ports,
				ForwardDropped: slices.Contains(h.drops, "FORWARD of filter")})
		}
	}
	return all
}

// wordsIn gives what a failed program printed on its standard error.
func wordsIn(err error) string {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || len(exit.Stderr) == 0 {
		return ""
	}
	return ": " + strings.TrimSpace(string(exit.Stderr))
}

// choose decides between the variants that can be used; usual is that of the iptables
// in PATH, if known, and missing says why the others cannot be used.
func choose(want string, found []holding, usual Variant, missing error) (Detection, error) {
	var chosen *holding
	reason := ""
	for i := range found {
		h := &found[i]
		switch {
		case want == string(h.variant):
			chosen, reason = h, "asked for"
		case want != Auto:
		case h.marked && (chosen == nil || !chosen.marked):
			chosen, reason = h, "the kubelet uses it"
		case chosen == nil && len(found) == 1:
			chosen, reason = h, "the other variant cannot be used here"
		case chosen == nil:
			chosen, reason = h, "neither variant holds more rules of Kubernetes, and no iptables in PATH says which it is"
		case chosen.marked:
		case h.rules > chosen.rules:
			chosen, reason = h, "it holds more rules of Kubernetes"
		case h.rules < chosen.rules:
			reason = "it holds more rules of Kubernetes"
		case usual != "":
			if h.variant == usual {
				chosen = h
			}
			reason = "neither variant holds more rules of Kubernetes, and the iptables in PATH is of this one"
		}
	}
	if chosen == nil {
		return Detection{}, missing
	}
	d := Detection{Variant: chosen.variant, Reason: reason}
	for _, h := range found {
		if h.variant == chosen.variant {
			continue
		}
		d.Beside = h.beside()
		if h.services > 0 {
			d.Leftovers = append(d.Leftovers, fmt.Sprintf(
				"the %s variant of iptables holds %d chains of Services beside the %s variant, which is used; "+
					"packets pass both: remove them with a cleanup of that variant", h.variant, h.services, chosen.variant))
		}
	}
	return d, nil
}

func plural(count int, what string) string {
	if count == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", count, what)
}
