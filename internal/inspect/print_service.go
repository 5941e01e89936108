// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/internal/terminal"
	"github.com/sluice-proxy/sluice/observe/state"
)

// ports returns the ports as kubectl writes them: "80:30080/TCP".
func (s *Service) ports() (all []string) {
	for _, p := range s.Ports {
		text := fmt.Sprint(p.Port)
		if p.NodePort != 0 {
			text += fmt.Sprintf(":%d", p.NodePort)
		}
		all = append(all, text+"/"+p.Protocol)
	}
	return all
}

// None implements List.
func (l *ServiceList) None() string { return "No Services" }

// Print prints the list for people.
func (l *ServiceList) Print(to *terminal.Page) {
	heads, first := []string{"NAMESPACE", "NAME", "CLUSTER-IP", "PORTS", "ENDPOINTS", "STATE", "CHANGES", "LATENCY", "LONGEST", "RESTARTS"}, 0
	if to.Wide {
		heads = append(heads, "LOCAL", "EXTERNAL-IP", "INTERNAL", "EXTERNAL", "BALANCING", "CHANGED", "AGE")
	}
	if l.Namespace != "" {
		first = 1
	}
	t := terminal.NewTable(to, heads[first:]...)
	for i := range l.Items {
		s := &l.Items[i]
		cells := []string{
			s.Namespace, s.Name, strings.Join(s.ClusterIPs, ","), shortened(s.ports(), 3), fmt.Sprint(s.Endpoints), string(s.State),
			fmt.Sprint(s.Changes), microsOf(s.LastMicros), microsOf(s.LongestMicros), fmt.Sprint(s.Restarts),
		}
		if to.Wide {
			cells = append(cells, fmt.Sprint(s.Local), shortened(slices.Concat(s.ExternalIPs, s.LoadBalancerIPs), 3),
				s.InternalPolicy, s.ExternalPolicy, s.Balancing, Age(l.Now, s.LastChange), Age(l.Now, s.Created))
		}
		t.Row(cells[first:]...)
	}
	t.End()
}

// Details are everything about several Services.
type Details []*ServiceDetail

// None implements List.
func (l Details) None() string { return "No Services" }

// Print prints one Service after the other.
func (l Details) Print(to *terminal.Page) {
	for i, d := range l {
		if i > 0 {
			to.Say("\n\n")
		}
		d.Print(to)
	}
}

// Print prints everything about a Service for people.
func (d *ServiceDetail) Print(to *terminal.Page) {
	d.printHead(to)
	d.printFrontends(to)
	d.printDomains(to)
	d.printTimeline(to)
}

func (d *ServiceDetail) printHead(to *terminal.Page) {
	t := terminal.NewTable(to)
	t.Row("Name:", d.Namespace+"/"+d.Name)
	if !d.Created.IsZero() {
		t.Row("Created:", Age(d.Now, d.Created)+" ago")
	}
	t.Row("State:", string(d.State))
	t.Row("Policies:", d.policies())
	t.Row("Endpoints:", fmt.Sprintf("%d selected for new connections, %d of them on this node%s", d.Endpoints, d.Local, d.draining()))
	changes := fmt.Sprint(d.Changes)
	if !d.LastChange.IsZero() {
		changes += ", the last " + Age(d.Now, d.LastChange) + " ago"
	}
	if d.LongestMicros != nil {
		changes += fmt.Sprintf("; from receipt to kernel %s, at most %s", microsOf(d.LastMicros), microsOf(d.LongestMicros))
	}
	t.Row("Changes:", changes)
	t.Row("Actor:", actorText(&d.Actor, d.Now))
	t.End()
}

func (d *ServiceDetail) policies() string {
	var parts []string
	for _, p := range []struct {
		is   bool
		text string
	}{
		{true, "internal traffic " + d.InternalPolicy},
		{d.ExternalPolicy != "", "external traffic " + d.ExternalPolicy},
		{d.AffinitySeconds == 0 && d.Balancing != "", "balancing " + d.Balancing},
		{d.SlowStart != "", "slow start " + d.SlowStart},
		{d.Outliers, "failing endpoints avoided"},
		{d.ZoneMinEndpoints > 0, "zones of at least " + plural.Of(d.ZoneMinEndpoints, "endpoint")},
		{d.ZoneShare > 0, fmt.Sprintf("%d %% in the zone", d.ZoneShare)},
		{d.Drain != "", "drain " + d.Drain},
		{d.AffinitySeconds > 0, fmt.Sprintf("ClientIP affinity for %d s", d.AffinitySeconds)},
		{len(d.SourceRanges) > 0, "load balancer sources " + strings.Join(d.SourceRanges, ",")},
		{len(d.DenySourceRanges) > 0, "denied sources " + shortened(d.DenySourceRanges, 10)},
		{d.NoEndpoints != "", "without endpoints " + d.NoEndpoints},
		{d.HealthCheckNodePort != 0, fmt.Sprintf("health check node port %d", d.HealthCheckNodePort)},
		{d.Scheduler != "", "IPVS scheduler " + d.Scheduler},
	} {
		if p.is {
			parts = append(parts, p.text)
		}
	}
	return strings.Join(parts, "; ")
}

func (d *ServiceDetail) draining() string {
	if d.Draining == 0 {
		return ""
	}
	return fmt.Sprintf("; %d keep their connections", d.Draining)
}

func actorText(a *state.Actor, now time.Time) string {
	text := cmp.Or(a.State, "none") + ", restarted " + plural.Of(a.Restarts, "time")
	if a.LastFailure != "" {
		text += fmt.Sprintf("; last failure %s ago: %s", Age(now, a.FailedAt), OneLine(a.LastFailure))
	}
	if a.TooLarge != "" {
		text += "; the Service " + OneLine(a.TooLarge)
	}
	if !a.ParkedUntil.IsZero() {
		text += "; parked, tried again in " + span(a.ParkedUntil.Sub(now)) + " or when the Service changes"
	}
	return text
}

func (d *ServiceDetail) printFrontends(to *terminal.Page) {
	to.Say("\nFrontends\n")
	t := terminal.NewTable(to, "  KIND", "ADDRESS", "PORT", "NAME", "POLICY", "ENDPOINTS", "NOTE")
	for _, f := range d.Frontends {
		note := ""
		switch {
		case f.ServedBy != "":
			note = "served by " + f.ServedBy
		case f.Endpoints == 0 && f.Policy == "Local":
			note = "no endpoint on this node: dropped (rejected if there are no endpoints at all)"
		case f.Endpoints == 0:
			note = "no endpoint: refused"
		}
		t.Row("  "+f.Kind, cmp.Or(f.Address, f.Family), fmt.Sprintf("%d/%s", f.Port, f.Protocol), f.PortName, f.Policy, fmt.Sprint(f.Endpoints), note)
	}
	t.End()
}

// objectsShown is how many objects of each domain are printed; -o json has more.
const objectsShown = 40

func (d *ServiceDetail) printDomains(to *terminal.Page) {
	for _, domain := range d.Domains {
		applied := cmp.Or(domain.Applied, "none")
		if domain.State == state.Pending && domain.Applied != "" && domain.Applied == domain.Revision {
			applied += ", incomplete" // some of its objects were removed
		}
		to.Say("\n%s: %s, revision %s, in the kernel %s\n", domain.Name, domain.State, cmp.Or(domain.Revision, "-"), applied)
		if domain.Error != "" {
			to.Say("  %s\n", domain.Error)
		}
		if q := domain.Quarantine; q != nil {
			to.Say("  Held for %s (revision %s); the previous rules remain. Reason:\n    %s\n",
				Age(d.Now, q.Since), q.Revision, strings.ReplaceAll(strings.TrimSpace(q.Reason), "\n", "\n    "))
		}
		t := terminal.NewTable(to)
		shown := domain.Objects[:min(len(domain.Objects), objectsShown)]
		for _, o := range shown {
			note := ""
			if o.State != state.Applied {
				note = string(o.State)
			}
			t.Row("  "+o.Container, o.Name, note)
		}
		t.End()
		if more := len(domain.Objects) - len(shown) + domain.Omitted; more > 0 {
			to.Say("  and %s\n", plural.Of(more, "more object"))
		}
	}
}

func (d *ServiceDetail) printTimeline(to *terminal.Page) {
	to.Say("\nTimeline (the last %d changes; times from receipt)\n", state.TimelineMax)
	if len(d.Timeline) == 0 {
		to.Say("  none\n")
		return
	}
	t := terminal.NewTable(to, "  RECEIVED", "DOMAIN", "CAUSE", "TRIGGERED", "SEEN", "RENDERED", "BATCHED", "APPLIED", "BATCH", "ENDPOINTS")
	for _, c := range d.Timeline {
		when := c.Received.UTC().Format("2006-01-02T15:04:05.000000Z")
		if c.Outcome != state.Applied {
			t.Row("  "+when, c.Domain, "", "", "", "", "", string(c.Outcome), "", "")
			continue
		}
		trigger, batch := "", ""
		if c.TriggerMicros != 0 {
			trigger = Micros(-c.TriggerMicros) + " before"
		}
		if c.Batch != 0 {
			batch = fmt.Sprint(c.Batch)
		}
		t.Row("  "+when, c.Domain, strings.Join(c.Causes, ","), trigger, Micros(c.SeenMicros), KnownMicros(c.RenderedMicros),
			KnownMicros(c.BatchedMicros), Micros(c.DoneMicros), batch, fmt.Sprint(c.Endpoints))
	}
	t.End()
}

// Print prints the endpoints of a Service for people. A wide or plain page gets the table for several Services.
func (l *EndpointList) Print(to *terminal.Page) {
	if to.Wide || to.Plain {
		Endpoints{l}.Print(to)
		return
	}
	where := "node " + l.Node
	if l.Zone != "" {
		where += ", zone " + l.Zone
	}
	to.Say("%s/%s, as seen from %s\n", l.Namespace, l.Name, where)
	for i := range l.Ports {
		l.Ports[i].print(to)
	}
}

// None implements List.
func (l *EndpointList) None() string { return Endpoints{l}.None() }

// Endpoints are the endpoints of several Services.
type Endpoints []*EndpointList

// None implements List.
func (l Endpoints) None() string {
	if len(l) == 0 {
		return "No Services"
	}
	return "No endpoints"
}

// Print prints one table.
func (l Endpoints) Print(to *terminal.Page) {
	t := terminal.NewTable(to, "NAMESPACE", "NAME", "PORT", "ENDPOINT", "READY", "SERVING", "TERMINATING", "NODE", "ZONE", "INTERNAL", "EXTERNAL", "SLICE")
	for _, of := range l {
		for i := range of.Ports {
			p := &of.Ports[i]
			for j := range p.Endpoints {
				t.Row(append([]string{of.Namespace, of.Name, fmt.Sprintf("%d/%s", p.Port.Port, p.Protocol)}, p.Endpoints[j].cells()...)...)
			}
		}
	}
	t.End()
}

func (e *Endpoint) cells() []string {
	return []string{e.Address, yes(e.Ready), yes(e.Serving), yes(e.Terminating), e.Node, e.Zone, e.Internal.text(), e.External.text(), e.Slice}
}

func (p *EndpointPort) print(to *terminal.Page) {
	name := p.Name
	if name != "" {
		name = " (" + name + ")"
	}
	to.Say("\nPort %d/%s%s, %s\n  internal traffic: %s\n", p.Port.Port, p.Protocol, name, p.Family, p.Internal.text())
	if p.External != nil {
		to.Say("  external traffic: %s\n", p.External.text())
	}
	if len(p.Endpoints) == 0 {
		to.Say("  no EndpointSlice lists an endpoint\n")
		return
	}
	t := terminal.NewTable(to, "  ENDPOINT", "READY", "SERVING", "TERMINATING", "NODE", "ZONE", "INTERNAL", "EXTERNAL", "SLICE")
	for i := range p.Endpoints {
		cells := p.Endpoints[i].cells()
		cells[0] = "  " + cells[0]
		t.Row(cells...)
	}
	t.End()
	if p.Omitted > 0 {
		to.Say("  and %d more\n", p.Omitted)
	}
}

func (r *Rule) text() string {
	return fmt.Sprintf("policy %s, %s: %d chosen", r.Policy, r.Rule, r.Chosen)
}

func (d *Decision) text() string {
	switch {
	case d == nil:
		return ""
	case d.Share > 0:
		return fmt.Sprintf("yes: %s, %.3g %%", d.Why, 100*d.Share)
	case d.Chosen:
		return "yes: " + d.Why
	default:
		return "no: " + d.Why
	}
}
