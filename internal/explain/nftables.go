// SPDX-License-Identifier: Apache-2.0

//go:build linux

package explain

import (
	"net/netip"

	"github.com/sluice-proxy/sluice/dataplane"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/service"
)

// nftRules are the rules of one domain in nftables mode.
type nftRules struct {
	*rules.Ruleset
	objects map[dataplane.ID]*dataplane.Object
}

func newNFTRules(family service.Family, objects []dataplane.Object, local func(netip.Addr) bool) (*nftRules, error) {
	ruleset, err := nftrender.Ruleset(family, objects, local)
	r := &nftRules{Ruleset: ruleset, objects: make(map[dataplane.ID]*dataplane.Object, len(objects))}
	for i := range objects {
		r.objects[objects[i].ID] = &objects[i]
	}
	return r, err
}

// remember adds a client to a map of clients.
func (r *nftRules) remember(name string, client netip.Addr, what nftrender.AffinityEntry) {
	if what.Left > 0 {
		key := string(client.AsSlice())
		r.Sets[name].Elements[key] = &rules.Element{Key: key, Data: string(what.Endpoint.AsSlice())}
	}
}

// clientMaps returns the names of the maps that remember clients.
func (r *nftRules) clientMaps() []string {
	var names []string
	for name := range r.Sets {
		if nftrender.IsClientsMap(name) {
			names = append(names, name)
		}
	}
	return names
}

func (r *nftRules) ways(p packet) ([]way, error) {
	outcomes, err := r.Outcomes(rules.Packet{AnyPort: p.AnyPort, Src: p.Src, Dst: p.Dst, Protocol: p.Protocol, In: p.In})
	if err != nil {
		return nil, err
	}
	var all []way
	for _, o := range outcomes {
		w := way{Verdict: nftVerdicts[o.End], To: o.To, Masqueraded: o.Masqueraded, Probability: o.Probability}
		for i := range o.Steps {
			step, err := r.step(&o.Steps[i])
			if err != nil {
				return nil, err
			}
			w.Steps = append(w.Steps, step)
		}
		all = append(all, w)
	}
	return all, nil
}

var nftVerdicts = map[rules.End]Verdict{
	rules.Untouched: Untouched, rules.Delivered: Delivered, rules.Rejected: Refused, rules.Dropped: Dropped,
}

func (r *nftRules) step(s *rules.Step) (step Step, err error) {
	step = Step{Hook: s.Hook(), Table: s.Base.Kind, Chain: s.Chain.Name, Base: s.Chain.Base != nil, Rule: s.Rule}
	if step.Text, err = s.Chain.Rules[s.Rule-1].Text(r.Family); err != nil || s.Element == nil {
		return step, err
	}
	step.Set = s.Set
	step.recalls = nftrender.IsLiveSet(s.Set)
	if element := r.objects[nftrender.ElementID(s.Set, s.Element.Key)]; element != nil {
		step.Element, err = nftrender.ElementText(r.Family, element)
	} else if client, ok := netip.AddrFromSlice([]byte(s.Element.Key)); ok {
		step.Element = client.String() // a packet added it
	}
	return step, err
}
