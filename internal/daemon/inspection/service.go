// SPDX-License-Identifier: Apache-2.0

package inspection

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/book"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

// ledgerTime bounds the wait for a ledger.
const ledgerTime = 2 * time.Second

// unapplied returns the Services that are not applied in each domain. If a ledger does not answer, no Service counts as
// applied.
func (i *Inspection) unapplied(ctx context.Context) (all []map[service.Key]bool) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTime)
	defer cancel()
	for _, status := range i.Proxy.Status() {
		in := map[service.Key]bool{}
		keys, err := i.Proxy.Pending(ctx, status.Domain)
		if err != nil {
			keys = i.Proxy.Keys()
		}
		for _, key := range keys {
			in[key] = true
		}
		all = append(all, in)
	}
	return all
}

// Services yields the wanted Services.
func (i *Inspection) Services(ctx context.Context, wanted func(service.Key) bool, yield func(*inspect.Service) bool) {
	i.states(ctx, wanted, func(spec *service.Spec, record *state.Record, _ []map[service.Key]bool) bool {
		made := listed(spec, *record)
		return yield(&made)
	})
}

// Counts counts Services by state, as in the list of Services, and by their state in each domain. In a domain, removed
// Services whose rules remain are pending.
func (i *Inspection) Counts(ctx context.Context) (all state.Counts, domains []state.Counts) {
	domains = make([]state.Counts, len(i.Backend.Domains))
	pending := i.states(ctx, func(service.Key) bool { return true }, func(spec *service.Spec, record *state.Record, pending []map[service.Key]bool) bool {
		all.Add(record)
		for n := range domains {
			if n < len(pending) {
				there := *record
				there.State = i.stateIn(n, spec, record, pending[n][spec.Key])
				domains[n].Add(&there)
			}
		}
		return true
	})
	for n, in := range pending[:min(len(pending), len(domains))] {
		for key := range in {
			if key != service.Node && i.Proxy.Snapshot(key).Spec == nil {
				domains[n].Pending++
			}
		}
	}
	return all, domains
}

// stateIn returns the state of a Service in a domain. A Service whose actor fails is in that state in all domains.
func (i *Inspection) stateIn(n int, spec *service.Spec, record *state.Record, pending bool) state.State {
	d := &i.Backend.Domains[n]
	held := slices.IndexFunc(record.Quarantines, func(q state.Quarantine) bool { return q.Domain == d.Name })
	switch {
	case record.State == state.Failing:
		return record.State
	case held >= 0:
		return record.Quarantines[held].State()
	case len(spec.Denied[d.Family]) > 0 && !d.Auxiliary:
		return state.Shadowed
	case pending, record.Changes == 0:
		return state.Pending
	default:
		return state.Applied
	}
}

// states yields the wanted Services with their gravest state. It yields and returns what unapplied returns.
func (i *Inspection) states(ctx context.Context, wanted func(service.Key) bool, yield func(*service.Spec, *state.Record, []map[service.Key]bool) bool) (pending []map[service.Key]bool) {
	pending = i.unapplied(ctx)
	look := i.Book.Look()
	for _, key := range i.Proxy.Keys() {
		if !wanted(key) {
			continue
		}
		spec := i.Proxy.Snapshot(key).Spec
		if spec == nil {
			continue // removed in the meantime
		}
		record, _ := look.Service(key)
		if slices.ContainsFunc(pending, func(in map[service.Key]bool) bool { return in[key] }) && state.Pending.Graver(record.State) {
			record.State = state.Pending
		}
		if spec.Shadowed() && state.Shadowed.Graver(record.State) {
			record.State = state.Shadowed
		}
		if !yield(spec, &record, pending) || ctx.Err() != nil {
			break
		}
	}
	return pending
}

// listed returns one line about a Service.
func listed(spec *service.Spec, record state.Record) inspect.Service {
	made := inspect.Service{
		Namespace: spec.Key.Namespace, Name: spec.Key.Name, Created: spec.Created.UTC(),
		ClusterIPs: []string{}, Ports: []inspect.Port{}, InternalPolicy: policy(spec.InternalLocal), Balancing: spec.Balancing.String(), Record: record,
	}
	outside := false
	for _, family := range service.Families {
		if ip := spec.ClusterIPs[family]; ip.IsValid() {
			made.ClusterIPs = append(made.ClusterIPs, ip.String())
		}
		made.ExternalIPs = append(made.ExternalIPs, texts(spec.ExternalIPs[family])...)
		made.LoadBalancerIPs = append(made.LoadBalancerIPs, texts(spec.LoadBalancerVIPs[family])...)
	}
	for _, p := range spec.Ports {
		made.Ports = append(made.Ports, portOf(&p))
		outside = outside || p.NodePort != 0
	}
	if outside || len(made.ExternalIPs)+len(made.LoadBalancerIPs) > 0 {
		made.ExternalPolicy = policy(spec.ExternalLocal)
	}
	return made
}

func policy(local bool) string {
	if local {
		return "Local"
	}
	return "Cluster"
}

func portOf(p *service.Port) inspect.Port {
	return inspect.Port{Name: p.Name, Protocol: strings.ToUpper(p.Protocol.String()), Port: int(p.Port), NodePort: int(p.NodePort)}
}

func texts[T fmt.Stringer](values []T) (all []string) {
	for _, v := range values {
		all = append(all, v.String())
	}
	return all
}

// Service returns everything about one Service.
func (i *Inspection) Service(ctx context.Context, key service.Key) *inspect.ServiceDetail {
	known := i.Proxy.Snapshot(key)
	spec := known.Spec
	if spec == nil {
		return nil
	}
	record, _ := i.Book.Look().Service(key)
	made := &inspect.ServiceDetail{
		Service: listed(spec, record), Actor: record.Actor, AffinitySeconds: spec.AffinitySeconds, HealthCheckNodePort: int(spec.HealthCheckNodePort),
		NoEndpoints: spec.NoEndpoints.String(), Scheduler: spec.Scheduling.Scheduler, Domains: []inspect.ServiceDomain{}, Timeline: i.Book.Timeline(key),
		Digest: inspect.Digest(known),
	}
	made.Outliers, made.ZoneMinEndpoints, made.ZoneShare = spec.Adaptation.Outliers, int(spec.Zones.MinEndpoints), int(spec.Zones.Share)
	if spec.Adaptation.SlowStart > 0 {
		made.SlowStart = spec.Adaptation.SlowStart.String()
	}
	if spec.Drain.Limited {
		made.Drain = spec.Drain.After.String()
	}
	for _, family := range service.Families {
		made.SourceRanges = append(made.SourceRanges, texts(spec.SourceRanges[family])...)
		made.DenySourceRanges = append(made.DenySourceRanges, texts(spec.DenyRanges[family])...)
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerTime)
	defer cancel()
	for n, status := range i.Proxy.Status() {
		domain := i.serviceDomain(ctx, n, &status, spec)
		if domain.State.Graver(made.State) {
			made.State = domain.State
		}
		made.Domains = append(made.Domains, domain)
	}
	if spec.Shadowed() && state.Shadowed.Graver(made.State) {
		made.State = state.Shadowed // in a family without a domain, too
	}
	made.Frontends = i.frontends(known)
	return made
}

// serviceDomain returns the state of a Service in one domain.
func (i *Inspection) serviceDomain(ctx context.Context, n int, status *aggregator.Status, spec *service.Spec) inspect.ServiceDomain {
	key := spec.Key
	made := inspect.ServiceDomain{Name: status.Domain, State: state.Applied, Objects: []inspect.Object{}}
	account, err := i.Proxy.Account(ctx, status.Domain, key, inspect.ObjectsMax)
	if err != nil {
		made.Error = "the domain does not answer fully: " + err.Error()
	}
	if account.Pending || account.Queued || err != nil || !account.Known {
		made.State = state.Pending
	}
	if d := &i.Backend.Domains[n]; len(spec.Denied[d.Family]) > 0 && !d.Auxiliary {
		made.State = state.Shadowed
	}
	for _, h := range account.Objects {
		o := inspect.Object{Container: h.Object.ID.Container, Name: i.objectName(n, &h), State: state.Applied}
		switch {
		case h.By != (service.Key{}):
			o.State = state.Shadowed
		case h.Differs:
			o.State = state.Pending
		}
		made.Objects = append(made.Objects, o)
	}
	if account.Known {
		made.Revision = account.Latest.String()
	}
	if account.Applied != (service.Revision{}) {
		made.Applied = account.Applied.String()
	}
	made.Omitted = account.Omitted
	for n := range status.Quarantined {
		if q := &status.Quarantined[n]; q.Key == key {
			of := book.QuarantineOf(status.Domain, q)
			made.State, made.Quarantine = of.State(), &of
		}
	}
	return made
}

// objectName names an object for people: names of elements are binary.
func (i *Inspection) objectName(n int, h *ledger.Holding) string {
	id := h.Object.ID
	if element := i.Backend.Mode.Element; element != nil {
		if text, err := element(i.Backend.Domains[n].Family, id); err == nil {
			return text
		}
	}
	switch {
	case !strings.ContainsFunc(id.Name, func(c rune) bool { return c < ' ' || c > '~' }):
		return id.Name
	case h.Frontend != (service.Frontend{}):
		return h.Frontend.String()
	default:
		return "entry " + strings.ToValidUTF8(strings.TrimSpace(h.Object.Body), "?")
	}
}

// frontends returns the frontends of a Service, including those that another Service serves.
func (i *Inspection) frontends(known service.Snapshot) []inspect.Frontend {
	all := []inspect.Frontend{}
	wanted := *known.Spec
	wanted.Denied = service.PerFamily[[]service.Denial]{}
	view := service.Resolve(wanted.Key, &wanted, known.Slices, i.Proxy.Facts())
	for _, family := range service.Families {
		for n := range view.Ports[family] {
			for e := range view.Ports[family][n].Exposures {
				f := inspect.Frontend{
					Kind: e.Kind.String(), Port: int(e.Port), Protocol: strings.ToUpper(e.Protocol.String()), PortName: view.Ports[family][n].Name,
					Family: family.String(), Policy: policy(e.Local), Endpoints: len(e.To),
				}
				if !e.IsNodePort() {
					f.Address = e.Addr.String()
				}
				if by, denied := known.Spec.DeniedBy(family, e.Frontend); denied {
					f.ServedBy = by.String()
				}
				all = append(all, f)
			}
		}
	}
	return all
}
