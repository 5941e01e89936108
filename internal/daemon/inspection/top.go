// SPDX-License-Identifier: Apache-2.0

package inspection

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/usage"
	"github.com/sluice-proxy/sluice/service"
)

// flowsAge is how old the open connections in an answer may be.
const flowsAge = 5 * time.Second

// Totals returns the total traffic of Services and endpoints, for a usage.Recorder.
func (i *Inspection) Totals(ctx context.Context) (usage.Amounts, error) {
	ctx, cancel := context.WithTimeout(ctx, trackedTime)
	defer cancel()
	totals, err := i.Metrics.Amounts(ctx)
	if err != nil || !i.accounts() {
		return totals, err
	}
	flows, err := i.Traffic.Flows(ctx, usage.Step)
	if err != nil {
		return nil, err
	}
	if flows.Since.IsZero() {
		return totals, nil
	}
	for key, of := range flows.Services {
		totals.Add(usage.Of{Service: key}, traffic.At{Counts: of.Counts})
		for endpoint, carried := range of.Endpoints {
			totals.Add(usage.Of{Service: key, Endpoint: endpoint}, traffic.At{Counts: carried.Counts})
		}
	}
	return totals, nil
}

// accounts reports whether bytes come from the kernel's connection table.
func (i *Inspection) accounts() bool {
	return i.Traffic != nil && i.Options.Sluice.Traffic.Accounting && !i.Backend.Mode.CountsBytes
}

// counted returns what this mode counts for Services or endpoints.
func (i *Inspection) counted(kind string) inspect.TopCounted {
	mode := &i.Backend.Mode
	c := inspect.TopCounted{
		Connections: true, Refused: len(mode.Refusals) > 0, Open: true, Bytes: mode.CountsBytes || i.accounts(),
	}
	if kind == "endpoints" {
		c.Connections = mode.CountsEndpoints || i.Options.Sluice.Traffic.Endpoints
		c.Refused = false
		c.Bytes = c.Bytes && (c.Connections || !mode.CountsBytes)
	}
	return c
}

// Top returns the Services, endpoints or clients of a query, unsorted.
func (i *Inspection) Top(ctx context.Context, q inspect.TopQuery) (*inspect.TopList, error) {
	if q.Kind == "clients" {
		return i.topClients(ctx, &q)
	}
	used, err := i.Usage.Since(ctx, time.Now().Add(-q.Since))
	if err != nil {
		return nil, err
	}
	open, err := i.open(ctx)
	if err != nil {
		return nil, err
	}
	items := map[usage.Of]inspect.TopItem{}
	item := func(of usage.Of) (inspect.TopItem, bool) {
		made := items[of]
		made.Namespace, made.Name = of.Service.Namespace, of.Service.Name
		if of.Endpoint.IsValid() {
			made.Endpoint = of.Endpoint.String()
		}
		return made, (q.Kind == "endpoints") == of.Endpoint.IsValid() && q.Wants(made.Namespace, made.Name)
	}
	for of, at := range used.Amounts {
		if made, wanted := item(of); wanted {
			made.Connections, made.Refused, made.BytesIn, made.BytesOut = at.Connections, at.Refused.Total(), at.BytesIn, at.BytesOut
			items[of] = made
		}
	}
	for of, n := range open {
		if made, wanted := item(of); wanted && n > 0 {
			made.Open = n
			items[of] = made
		}
	}
	return &inspect.TopList{From: used.From.UTC(), To: used.To.UTC(), Counted: i.counted(q.Kind), Items: slices.Collect(maps.Values(items))}, nil
}

// open returns the open connections by Service and endpoint.
func (i *Inspection) open(ctx context.Context) (map[usage.Of]uint64, error) {
	open := map[usage.Of]uint64{}
	if i.Traffic == nil {
		for _, key := range i.Proxy.Keys() {
			for _, of := range i.Forwarders.Registry().Traffic(key) {
				if of == nil {
					continue
				}
				open[usage.Of{Service: key}] += of.Open
				for endpoint, e := range of.Endpoints {
					open[usage.Of{Service: key, Endpoint: endpoint}] += e.Open
				}
			}
		}
		return open, nil
	}
	flows, err := i.Traffic.Flows(ctx, flowsAge)
	if err != nil {
		return nil, err
	}
	for key, of := range flows.Services {
		open[usage.Of{Service: key}] = of.Open
		for endpoint, carried := range of.Endpoints {
			open[usage.Of{Service: key, Endpoint: endpoint}] = carried.Open
		}
	}
	return open, nil
}

// client is a client of a Service.
type client struct {
	of      service.Key
	address netip.Addr
}

// topClients returns clients with their open connections, and the traffic of these: in userspace mode since they began,
// in the other modes since the reading of the connection table before the last one.
func (i *Inspection) topClients(ctx context.Context, q *inspect.TopQuery) (*inspect.TopList, error) {
	list := &inspect.TopList{Counted: inspect.TopCounted{Open: true}}
	clients := map[client]inspect.TopItem{}
	add := func(of service.Key, address netip.Addr, carried traffic.Carried) {
		if !q.Wants(of.Namespace, of.Name) || carried.Open == 0 && carried.Bytes() == 0 {
			return // of closed connections
		}
		made := clients[client{of, address}]
		made.Namespace, made.Name, made.Client = of.Namespace, of.Name, address.String()
		made.Open, made.BytesIn, made.BytesOut = made.Open+carried.Open, made.BytesIn+carried.BytesIn, made.BytesOut+carried.BytesOut
		clients[client{of, address}] = made
	}
	var err error
	if i.Traffic == nil {
		list.Counted.Bytes, list.From = true, i.Started.UTC()
		i.relayedClients(add)
	} else {
		err = i.trackedClients(ctx, list, add)
	}
	list.Items = slices.Collect(maps.Values(clients))
	return list, err
}

// relayedClients adds the clients of the connections that this process forwards.
func (i *Inspection) relayedClients(add func(service.Key, netip.Addr, traffic.Carried)) {
	for above, more := uint64(0), true; more; {
		var found []*userspace.Open
		found, more = i.Forwarders.Registry().Connections(above, inspect.ConnectionsMax, func(*userspace.Open) bool { return true })
		for _, o := range found {
			add(o.Port.Service, o.Client.Addr(), traffic.Carried{Open: 1, Counts: traffic.Counts{BytesIn: o.ToTargets.Load(), BytesOut: o.ToClients.Load()}})
			above = o.Number
		}
	}
}

// trackedClients adds the clients of the kernel's connection table with the most connections and bytes.
func (i *Inspection) trackedClients(ctx context.Context, list *inspect.TopList, add func(service.Key, netip.Addr, traffic.Carried)) error {
	flows, err := i.Traffic.Flows(ctx, flowsAge)
	if err != nil {
		return err
	}
	if list.From = flows.Began.UTC(); !flows.Previous.IsZero() {
		list.From = flows.Previous.UTC()
	}
	list.Counted.Bytes = i.accounts() && !flows.Previous.IsZero()
	for key, of := range flows.Services {
		for _, r := range of.ByConnections {
			add(key, r.Key, traffic.Carried{Open: r.Seen.Open})
		}
		for _, r := range of.ByBytes {
			add(key, r.Key, traffic.Carried{Counts: r.Seen.Counts})
		}
	}
	return nil
}

// History returns the traffic of the last 15 minutes.
func (i *Inspection) History(_ context.Context, of *service.Key) (*inspect.History, error) {
	made := &inspect.History{Counted: i.counted("services")}
	made.Counted.Open = false
	for _, s := range i.Usage.Steps() {
		var sum traffic.At
		for used, at := range s.Amounts {
			if !used.Endpoint.IsValid() && (of == nil || used.Service == *of) {
				sum = sum.Plus(at)
			}
		}
		made.Steps = append(made.Steps, inspect.HistoryStep{
			From: s.From.UTC(), To: s.To.UTC(), Connections: sum.Connections, Refused: sum.Refused.Total(), BytesIn: sum.BytesIn, BytesOut: sum.BytesOut,
		})
	}
	return made, nil
}
