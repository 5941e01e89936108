// SPDX-License-Identifier: Apache-2.0

package inspection

import (
	"context"
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/host/hostaddress"
	"github.com/sluice-proxy/sluice/internal/host/needs"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// trackedTime bounds the listing of connections, and trackedMax their number.
	trackedTime = 5 * time.Second
	trackedMax  = 20
	// pendingMax bounds the Services whose ledgers are asked about one connection.
	pendingMax = 10
)

// Explain predicts what happens to a connection: it renders the Services concerned again, with the renderers of the
// running domains, and reads the state that earlier packets left in the kernel.
func (i *Inspection) Explain(ctx context.Context, q explain.Flow) (*explain.Answer, error) {
	addresses, err := hostaddress.List()
	if err != nil {
		return nil, err
	}
	memory := &kernelMemory{ctx: ctx}
	defer memory.close()
	seen := &explain.State{
		Mode: string(i.Backend.Mode.Name), Services: i.Proxy, Node: i.Proxy.Node(), Facts: i.Proxy.Facts(), Addresses: addresses,
		Domain: i.domainOf, ForwardsLocalhost: i.Options.ForwardsLocalhost(),
		Towards: hostaddress.Towards, Unserved: i.Feed.Unserved,
	}
	if !i.Backend.Mode.ForgetsClients {
		seen.Memory = memory
	}
	answer, err := explain.Explain(seen, q)
	if err != nil {
		return nil, err
	}
	answer.Pending = i.pending(ctx, answer, q.To.Addr())
	answer.Connections = connectionsOf(ctx, q)
	answer.NotEvaluated = i.notEvaluated(ctx, service.FamilyOf(q.To.Addr()))
	return answer, nil
}

// notEvaluated describes the chains of other programs that packets of a family pass, as of now.
func (i *Inspection) notEvaluated(ctx context.Context, family service.Family) (all []string) {
	chains, err := needs.Chains(ctx, i.Backend.Variant != iptkernel.Legacy)
	for n := range chains {
		if chains[n].Sees(family) {
			all = append(all, chains[n].Text())
		}
	}
	if err != nil {
		all = append(all, explain.UnknownChains+err.Error())
	}
	return all
}

// domainOf returns the renderer that writes a family's rules, and an empty layout or nil.
func (i *Inspection) domainOf(family service.Family) (dataplane.Renderer, dataplane.Layout) {
	for n := range i.Backend.Domains {
		if d := &i.Backend.Domains[n]; d.Family == family && !d.Auxiliary {
			if d.Layout != nil {
				return d.Renderer, iptrender.NewLayout(family)
			}
			return d.Renderer, nil
		}
	}
	return nil, nil
}

// pending returns the Services at the destination whose newest rules are not applied in its family,
// and the node if its own are not. On localhost, that includes listeners.
func (i *Inspection) pending(ctx context.Context, answer *explain.Answer, to netip.Addr) (found []explain.Pending) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTime)
	defer cancel()
	keys := []service.Key{service.Node}
	for _, f := range answer.Frontends[:min(len(answer.Frontends), pendingMax)] {
		keys = append(keys, service.ParseKey(f.Service))
	}
	for n, status := range i.Proxy.Status() {
		if d := &i.Backend.Domains[n]; d.Family != service.FamilyOf(to) || d.Auxiliary && !to.IsLoopback() {
			continue
		}
		for _, key := range keys {
			spec := i.Proxy.Snapshot(key).Spec
			if spec == nil {
				spec = &service.Spec{Key: key} // the node, or a Service that was just deleted
			}
			stands := i.serviceDomain(ctx, n, &status, spec)
			class := stands.State.Class()
			if class != state.Pending && class != state.Held {
				continue
			}
			p := explain.Pending{Service: key.String(), State: string(class)}
			if stands.Quarantine != nil {
				p.Reason = stands.Quarantine.Reason
			}
			found = append(found, p)
		}
	}
	return found
}

// connectionsOf asks the kernel for the connections of a client to a destination.
func connectionsOf(ctx context.Context, q explain.Flow) *explain.Connections {
	ctx, cancel := context.WithTimeout(ctx, trackedTime)
	defer cancel()
	found := &explain.Connections{Items: []explain.Connection{}}
	list, more, err := conntrack.Connections(ctx, q.Protocol, q.From, q.To, trackedMax)
	if err != nil {
		found.Error = err.Error()
		return found
	}
	found.More = more
	for _, c := range list {
		found.Items = append(found.Items, explain.Connection{
			From: c.From.String(), To: c.Answerer.String(), Source: c.Seen.String(), State: c.State, Offloaded: c.Offloaded,
		})
	}
	return found
}

// kernelMemory is what this node's kernel remembers of clients. It serves one query.
type kernelMemory struct {
	ctx    context.Context
	socket *wire.Socket
}

func (m *kernelMemory) close() {
	if m.socket != nil {
		_ = m.socket.Close() // nothing was written
	}
}

// InMap implements explain.Memory.
func (m *kernelMemory) InMap(family service.Family, name string, client netip.Addr) (nftrender.AffinityEntry, bool, error) {
	if m.socket == nil {
		opened, err := wire.Open()
		if err != nil {
			return nftrender.AffinityEntry{}, false, err
		}
		m.socket = opened
	}
	return nftkernel.Remembered(m.ctx, m.socket, family, name, client)
}

// InList implements explain.Memory.
func (m *kernelMemory) InList(_ service.Family, list string, client netip.Addr) (time.Duration, bool, error) {
	return iptkernel.SeenRecently(list, client)
}
