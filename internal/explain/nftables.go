package explain

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/internal/nftmodel"
	"github.com/sluice-proxy/sluice/service"
)

// nftRules is nf_tables in memory, with the objects of one domain in it.
type nftRules struct {
	family  service.Family
	kernel  *nftmodel.Kernel
	objects map[dataplane.ID]*dataplane.Object
}

// newNFTRules writes the objects to a model of the kernel, with the backend's own writer.
func newNFTRules(family service.Family, objects []dataplane.Object, locals []netip.Addr) (*nftRules, error) {
	r := &nftRules{family: family, kernel: nftmodel.NewKernel(), objects: make(map[dataplane.ID]*dataplane.Object)}
	r.kernel.SetAddresses(locals...)
	batch := dataplane.Batch{Number: 1}
	for i := range objects {
		o := &objects[i]
		r.objects[o.ID] = o
		batch.Changes = append(batch.Changes, dataplane.Change{ID: o.ID, After: o})
	}
	receipt := r.kernel.Writer(family).Write(context.Background(), &batch)
	if receipt.Outcome != dataplane.Landed {
		return nil, fmt.Errorf("the model of nf_tables does not take the rules: %w", receipt.Err)
	}
	return r, nil
}

// remember makes a map of clients hold one.
func (r *nftRules) remember(name string, client netip.Addr, what nftables.Recollection) {
	element := nftmodel.Name{Family: r.family, Table: nftables.TableName, Set: name, Key: string(client.AsSlice())}
	r.kernel.Remember(element, string(what.Endpoint.AsSlice()), what.Left)
}

// clientMaps returns the maps that remember clients.
func (r *nftRules) clientMaps() []string {
	var names []string
	for id := range r.objects {
		if name, ok := nftables.ClientsMap(id); ok {
			names = append(names, name)
		}
	}
	return names
}

func (r *nftRules) ways(p packet) ([]way, error) {
	var all []way
	for _, o := range r.kernel.Outcomes(nftmodel.Packet{Src: p.Src, Dst: p.Dst, Protocol: p.Protocol, In: p.In}) {
		w := way{Verdict: nftVerdicts[o.Verdict], To: o.To, Masqueraded: o.Masqueraded, Probability: o.Probability}
		for _, s := range o.Steps {
			step, err := r.step(s)
			if err != nil {
				return nil, err
			}
			w.Steps = append(w.Steps, step)
		}
		all = append(all, w)
	}
	return all, nil
}

var nftVerdicts = map[nftmodel.Verdict]Verdict{
	nftmodel.Untouched: Untouched, nftmodel.Delivered: Delivered, nftmodel.Rejected: Refused, nftmodel.Dropped: Dropped,
}

func (r *nftRules) step(s nftmodel.Step) (Step, error) {
	step := Step{Hook: s.Hook, Table: s.Kind, Chain: s.Chain, Base: s.Base, Rule: s.Rule}
	chain := r.objects[nftables.ChainID(s.Chain)]
	if chain == nil {
		return step, fmt.Errorf("chain %s is not among the rules", s.Chain)
	}
	var err error
	if step.Text, err = nftables.RuleText(r.family, chain, s.Rule); err != nil || s.Element.Set == "" {
		return step, err
	}
	step.Set = s.Element.Set
	step.recalls = nftables.IsLiveSet(step.Set)
	if element := r.objects[nftables.ElementID(s.Element.Set, s.Element.Key)]; element != nil {
		step.Element, err = nftables.ElementText(r.family, element)
	} else if client, ok := netip.AddrFromSlice([]byte(s.Element.Key)); ok {
		step.Element = client.String() // what a packet has added
	}
	return step, err
}
