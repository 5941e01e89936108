package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/service"
)

// served is one Service as a kernel has it.
type served struct {
	n     int
	state state
	view  service.View
}

func serve(n int, s state) served { return served{n, s, s.view(keyOf(n))} }

// older orders as claims are decided: the older Service first, then the smaller
// key.
func older(a, b served) int {
	if by := a.view.Created.Compare(b.view.Created); by != 0 {
		return by
	}
	return a.view.Key.Compare(b.view.Key)
}

// reference is what one family's kernel has to hold: the chains of the proxy,
// each with its rules, and its hooks by the chain they are in.
type reference struct {
	chains map[place][]string
	hooks  map[place][]string
}

// refer computes a reference from scratch: everything is rendered, the older
// claim wins, and a fresh layout composes what is left.
func (w *world) refer(family service.Family, all []served) reference {
	render := iptables.NewRenderer(family, w.settings.options)
	objects := map[dataplane.ID]dataplane.Object{}
	add := func(rendered []dataplane.Object) {
		for _, o := range rendered {
			if _, claimed := objects[o.ID]; !claimed {
				objects[o.ID] = o
			}
		}
	}
	add(render.Node(w.cluster.facts()))
	for _, s := range slices.SortedFunc(slices.Values(all), older) {
		add(render.Service(&s.view, s.state.facts))
	}
	return compose(family, objects)
}

func compose(family service.Family, objects map[dataplane.ID]dataplane.Object) reference {
	layout := iptables.NewLayout(family)
	r := reference{map[place][]string{}, map[place][]string{}}
	for id, o := range objects {
		table, chain, isHook := strings.Cut(id.Container, "/")
		switch {
		case o.Kind == dataplane.Element:
			layout.Put(&o, service.Key{Namespace: "any"})
		case isHook:
			at := place{iptables.Table(table), chain}
			r.hooks[at] = append(r.hooks[at], o.Body)
		default:
			r.chains[place{iptables.Table(id.Container), id.Name}] = ruleTexts(o.Body)
		}
	}
	for _, c := range layout.Flush() {
		if c.Object != nil {
			r.chains[place{iptables.Table(c.ID.Container), c.ID.Name}] = ruleTexts(c.Object.Body)
		}
	}
	return r
}

func ruleTexts(body string) []string {
	if body == "" {
		return nil
	}
	return strings.Split(body, "\n")
}

// choices gives every combination of what may be in a family's kernel; usually
// there is one. Services that are held back may have left one of several states.
func (w *world) choices(family service.Family) [][]served {
	const most = 64
	combinations := [][]served{nil}
	for _, n := range w.cluster.numbers() {
		candidates := w.distinct(n, family)
		var next [][]served
		for _, c := range combinations {
			for _, s := range candidates {
				if len(next) < most {
					next = append(next, append(slices.Clip(c), s))
				}
			}
		}
		combinations = next
	}
	return combinations
}

// distinct gives the candidates of a Service that differ in their rules, newest
// first.
func (w *world) distinct(n int, family service.Family) []served {
	render := iptables.NewRenderer(family, w.settings.options)
	seen := map[uint64]bool{}
	var out []served
	for _, s := range slices.Backward(w.cluster.candidates(n, family)) {
		candidate := serve(n, s)
		f := dataplane.NewFragment(keyOf(n), time.Time{}, render.Service(&candidate.view, s.facts))
		if !seen[f.Digest] && w.plausible(family, f) {
			seen[f.Digest] = true
			out = append(out, candidate)
		}
	}
	if len(out) == 0 {
		out = append(out, serve(n, w.cluster.candidates(n, family)[0]))
	}
	return out
}

// plausible tells whether the kernel holds the chains of a fragment as they are
// there. Those of a Service are nobody else's.
func (w *world) plausible(family service.Family, f *dataplane.Fragment) bool {
	for _, o := range f.Objects {
		if o.Kind != dataplane.Owned {
			continue
		}
		rules, _ := w.nodes[family].kernel.Rules(iptables.Table(o.ID.Container), o.ID.Name)
		if !slices.Equal(rules, ruleTexts(o.Body)) {
			return false
		}
	}
	return true
}
