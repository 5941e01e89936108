package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
)

// compare gives an error that names every chain in which the kernel is not what
// the reference says, and everything of somebody else's that was not left alone.
func (n *node) compare(r reference) error {
	var errs []error
	wrong := func(at place, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%v %s %s: %s", n.family, at.table, at.chain, fmt.Sprintf(format, args...)))
	}
	seen := map[place]bool{}
	for _, table := range tables {
		for _, chain := range n.kernel.Chains(table) {
			at := place{table, chain}
			seen[at] = true
			rules, _ := n.kernel.Rules(table, chain)
			want, ours := r.chains[at]
			foreign, theirs := n.foreign[at]
			switch {
			case ours && len(want) == 0 && iptables.Shared(chain): // only has to exist
			case ours && n.remains && chain == hairpins:
			case ours && !slices.Equal(rules, want):
				wrong(at, "has\n%s\nwant\n%s", indent(rules), indent(want))
			case ours:
			case isBuiltin(chain):
				if got := n.withoutHooks(r, at, rules, wrong); !slices.Equal(got, foreign) {
					wrong(at, "somebody else's rules are\n%s\nwere\n%s", indent(got), indent(foreign))
				}
			case theirs && !slices.Equal(rules, foreign):
				wrong(at, "somebody else's chain is\n%s\nwas\n%s", indent(rules), indent(foreign))
			case theirs, iptables.Shared(chain):
			default:
				wrong(at, "nobody wants this chain:\n%s", indent(rules))
			}
		}
	}
	for at := range r.chains {
		if !seen[at] {
			wrong(at, "is missing")
		}
	}
	for at := range n.foreign {
		if !seen[at] {
			wrong(at, "somebody else's chain is gone")
		}
	}
	return errors.Join(errs...)
}

var builtins = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

func isBuiltin(chain string) bool { return slices.Contains(builtins, chain) }

// withoutHooks gives a built-in chain's other rules, and objects unless each hook
// is there once.
func (n *node) withoutHooks(r reference, at place, rules []string, wrong func(place, string, ...any)) []string {
	rest := slices.Clone(rules)
	for _, hook := range r.hooks[at] {
		i := slices.Index(rest, hook)
		if i < 0 {
			wrong(at, "lacks the hook %s", hook)
			continue
		}
		rest = slices.Delete(rest, i, i+1)
	}
	return rest
}

// hairpins is the chain of endpoints that reach themselves. Its rules bear no Service's
// name: those of a former process stay while somebody is held back that they may
// belong to, unless a Service that has them as well gives them up.
const hairpins = "KUBE-SVC-HAIRPIN"

func indent(rules []string) string { return "\t" + strings.Join(rules, "\n\t") }
