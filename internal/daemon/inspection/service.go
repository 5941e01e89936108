package inspection

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// standingMax bounds what one ledger is asked about all Services. While more of them wait, some
	// of these may be shown as in force.
	standingMax = 1000
	// ledgerTime bounds the wait for a ledger.
	ledgerTime = 2 * time.Second
)

// standings has the Services that do not stand as they should.
type standings map[service.Key]inspect.State

// note keeps the gravest state of a Service.
func (s standings) note(key service.Key, state inspect.State) {
	if rank(state) > rank(s[key]) {
		s[key] = state
	}
}

var ranks = map[inspect.State]int{
	inspect.InForce: 0, inspect.Waiting: 1, inspect.Shadowed: 2, inspect.Quarantined: 3,
	inspect.Restarting: 4, inspect.Parked: 5, inspect.TooLarge: 6,
}

func rank(s inspect.State) int { return ranks[s] }

// standings asks every domain. A ledger that does not answer adds nothing.
func (i *Inspection) standings(ctx context.Context) standings {
	ctx, cancel := context.WithTimeout(ctx, ledgerTime)
	defer cancel()
	all := standings{}
	for _, status := range i.Proxy.Status() {
		for _, q := range status.Quarantined {
			all.note(q.Key, inspect.Quarantined)
		}
		standing, err := i.Proxy.Standing(ctx, status.Domain, standingMax)
		if err != nil {
			continue
		}
		for _, key := range standing.Waiting {
			all.note(key, inspect.Waiting)
		}
		for _, key := range standing.Shadowed {
			all.note(key, inspect.Shadowed)
		}
	}
	return all
}

// Services yields the wanted Services.
func (i *Inspection) Services(ctx context.Context, wanted func(service.Key) bool, yield func(*inspect.Service) bool) {
	standings := i.standings(ctx)
	for _, key := range i.Proxy.Keys() {
		if !wanted(key) {
			continue
		}
		spec := i.Proxy.Snapshot(key).Spec
		if spec == nil {
			continue // gone meanwhile
		}
		made := i.service(spec)
		standings.note(key, made.State)
		if state := standings[key]; state != "" {
			made.State = state
		}
		if !yield(&made) || ctx.Err() != nil {
			return
		}
	}
}

// service returns one line about a Service. Its state is that of the actor alone.
func (i *Inspection) service(spec *service.Spec) inspect.Service {
	made := inspect.Service{
		Namespace: spec.Key.Namespace, Name: spec.Key.Name, Created: utc(spec.Created),
		ClusterIPs: []string{}, Ports: []inspect.Port{}, InternalPolicy: policy(spec.InternalLocal), State: inspect.InForce,
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
	r, known := i.Metrics.Record(spec.Key)
	made.Endpoints, made.Local, made.Draining = r.Endpoints, r.Local, r.Draining
	made.Changes, made.LastChange, made.Restarts = r.Commits, utc(r.LastCommit), r.Restarts
	if known && r.Longest >= 0 {
		last, longest := r.Last.Microseconds(), r.Longest.Microseconds()
		made.LastMicros, made.LongestMicros = &last, &longest
	}
	switch {
	case r.TooLarge != "":
		made.State = inspect.TooLarge
	case r.State == metrics.StateParked:
		made.State = inspect.Parked
	case r.State == metrics.StateWaiting:
		made.State = inspect.Restarting
	case r.Commits == 0:
		made.State = inspect.Waiting
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
	made := &inspect.ServiceDetail{
		Service: i.service(spec), AffinitySeconds: spec.AffinitySeconds, HealthCheckNodePort: int(spec.HealthCheckNodePort),
		Scheduler: spec.Scheduling.Scheduler, Domains: []inspect.ServiceDomain{}, Timeline: i.timeline(key),
	}
	for _, family := range service.Families {
		made.SourceRanges = append(made.SourceRanges, texts(spec.SourceRanges[family])...)
	}
	if r, known := i.Metrics.Record(key); known {
		made.Actor = inspect.Actor{
			State: r.State, Restarts: r.Restarts, Failures: r.Failures, LastFailure: r.LastFailure,
			FailedAt: utc(r.FailedAt), ParkedUntil: utc(r.ParkedUntil), TooLarge: r.TooLarge,
		}
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerTime)
	defer cancel()
	served := map[dataplane.Frontend]service.Key{}
	for n, status := range i.Proxy.Status() {
		domain := i.serviceDomain(ctx, n, &status, key, served)
		if rank(domain.State) > rank(made.State) {
			made.State = domain.State
		}
		made.Domains = append(made.Domains, domain)
	}
	made.Frontends = i.frontends(known, served)
	return made
}

// serviceDomain returns how a Service stands in one domain. It adds the frontends that others serve.
func (i *Inspection) serviceDomain(ctx context.Context, n int, status *aggregator.Status, key service.Key,
	served map[dataplane.Frontend]service.Key) inspect.ServiceDomain {
	made := inspect.ServiceDomain{Name: status.Domain, State: inspect.InForce, Objects: []inspect.Object{}}
	account, err := i.Proxy.Account(ctx, status.Domain, key, inspect.ObjectsMax)
	if err != nil {
		made.Error = "the domain does not answer fully: " + err.Error()
	}
	if account.Pending || account.Queued || err == nil && !account.Known {
		made.State = inspect.Waiting
	}
	for _, h := range account.Objects {
		o := inspect.Object{Container: h.Object.ID.Container, Name: i.objectName(n, &h), State: inspect.InForce}
		switch {
		case h.By != (service.Key{}) && h.Differs:
			o.State = inspect.Shadowed
			if h.Frontend != (dataplane.Frontend{}) {
				served[h.Frontend] = h.By
				made.State = inspect.Shadowed
			}
		case h.Differs:
			o.State = inspect.Waiting
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
	for _, q := range status.Quarantined {
		if q.Key == key {
			made.State, made.Quarantine = inspect.Quarantined, quarantineOf(&q)
		}
	}
	return made
}

// objectName names an object for people: names of elements are binary.
func (i *Inspection) objectName(n int, h *ledger.Holding) string {
	id := h.Object.ID
	if i.Backend.Mode == config.ModeNFTables {
		if _, text, err := nftables.Element(i.Backend.Domains[n].Family, id.Name, id.Container); err == nil {
			return text
		}
	}
	switch {
	case !strings.ContainsFunc(id.Name, func(c rune) bool { return c < ' ' || c > '~' }):
		return id.Name
	case h.Frontend != (dataplane.Frontend{}):
		return h.Frontend.String()
	default:
		return "entry " + strings.ToValidUTF8(strings.TrimSpace(h.Object.Body), "?")
	}
}

// frontends returns where clients reach a Service; served has those that other Services serve.
func (i *Inspection) frontends(known service.Snapshot, served map[dataplane.Frontend]service.Key) []inspect.Frontend {
	all := []inspect.Frontend{}
	view := service.Resolve(known.Spec.Key, known.Spec, known.Slices, i.Proxy.Facts())
	for _, family := range service.Families {
		for n := range view.Ports[family] {
			p := &view.Ports[family][n]
			add := func(kind string, addr netip.Addr, port uint16, local bool) {
				f := inspect.Frontend{
					Kind: kind, Port: int(port), Protocol: strings.ToUpper(p.Protocol.String()), PortName: p.Name,
					Family: family.String(), Policy: policy(local), Endpoints: len(p.Cluster),
				}
				if local {
					f.Endpoints = len(p.Local)
				}
				if addr.IsValid() {
					f.Address = addr.String()
				}
				if by, shadowed := served[dataplane.Frontend{Addr: addr, Port: port, Protocol: p.Protocol}]; shadowed {
					f.ServedBy = by.String()
				}
				all = append(all, f)
			}
			add("ClusterIP", p.ClusterIP, p.Port, p.InternalLocal)
			for _, addr := range p.ExternalIPs {
				add("ExternalIP", addr, p.Port, p.ExternalLocal)
			}
			for _, addr := range p.LoadBalancerVIPs {
				add("LoadBalancerIP", addr, p.Port, p.ExternalLocal)
			}
			if p.NodePort != 0 {
				add("NodePort", netip.Addr{}, p.NodePort, p.ExternalLocal)
			}
		}
	}
	return all
}

// timeline returns the last changes of a Service.
func (i *Inspection) timeline(key service.Key) []inspect.Change {
	all := []inspect.Change{}
	for _, c := range i.Metrics.Timeline(key) {
		// Everything is counted from the receipt, or from the first look without one.
		origin := c.Received
		if origin == 0 {
			origin = max(c.Seen, c.Rendered, c.Dispatched)
		}
		after := func(before time.Duration) int64 {
			if before == 0 {
				return 0
			}
			return max(0, (origin - before).Microseconds())
		}
		made := inspect.Change{
			Domain: c.Domain, Revision: c.Revision.String(), Causes: c.Causes.Names(), Outcome: inspect.InForce,
			Received: utc(c.Done.Add(-origin)), SeenMicros: after(c.Seen), RenderedMicros: after(c.Rendered),
			BatchedMicros: after(c.Dispatched), DoneMicros: origin.Microseconds(),
			Batch: c.Batch, Endpoints: c.Endpoints,
		}
		if c.Trigger > origin {
			made.TriggerMicros = -(c.Trigger - origin).Microseconds()
		}
		if c.Refused {
			made.Outcome = inspect.Quarantined
		}
		if made.Causes == nil {
			made.Causes = []string{}
		}
		all = append(all, made)
	}
	return all
}
