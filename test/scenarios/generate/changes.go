package generate

import (
	"fmt"
	"slices"
	"strings"
)

// change makes up one change of what the API says.
func (d *dice) change() {
	s := of(d, d.services...)
	switch n := d.IntN(100); {
	case n < 50:
		d.setSlice(s)
	case n < 72 && s.alive:
		d.changeService(s)
	case n < 80 && s.alive:
		d.say("delete service %s", s.name)
		s.alive = false
		if d.one(30) { // and at once again
			d.newService()
		}
	case n < 86 && len(s.slices) > 0:
		slice := of(d, s.slices...)
		d.say("delete slice %s of=%s", slice, s.name)
		s.slices = slices.DeleteFunc(s.slices, func(name string) bool { return name == slice })
	case n < 92:
		d.say("node zone=%s", of(d, "za", "zb", "none"))
	default:
		d.newService()
	}
}

// changeService changes fields of a Service that there is.
func (d *dice) changeService(s *made) {
	if !s.alive {
		return
	}
	words := d.someFields(s, 3)
	if d.one(30) {
		s.kind = of(d, "ClusterIP", "NodePort", "LoadBalancer")
		if d.one(30) {
			d.newPorts(s)
		}
		words = append([]string{"type=" + s.kind, s.portsWord()}, words...)
	}
	if len(words) == 0 {
		words = []string{"labels=touched:yes"}
	}
	d.say("service %s %s", s.name, strings.Join(words, " "))
}

// setSlice makes up a slice of a Service. Hints come in most or none of the
// endpoints of a slice, since they mean nothing otherwise.
func (d *dice) setSlice(s *made) {
	name := of(d, "main", "main", "main", "two")
	if !slices.Contains(s.slices, name) {
		s.slices = append(s.slices, name)
	}
	words := []string{"of=" + s.name}
	if d.one(12) {
		p := s.ports[0]
		word := fmt.Sprintf("ports=%s:%d", of(d, p.name, p.name, "other", "nil"), of(d, 8080, 8081, 9090))
		if p.protocol != "tcp" {
			word += "/" + strings.ToUpper(p.protocol)
		}
		words = append(words, word)
	}
	if d.one(5) {
		words = append(words, "families="+of(d, "ipv4", "ipv6"))
	}
	if d.one(2) {
		words = append(words, "labels=service.kubernetes.io/headless:")
	}
	zones, nodes := d.one(30), d.one(12)
	names := []string{"a", "a", "b", "b", "c", "a2", "p1", "p2", "node"}
	d.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	names = names[:of(d, 0, 1, 1, 2, 2, 2, 3, 4)]
	slices.Sort(names)
	for _, endpoint := range slices.Compact(names) {
		words = append(words, d.endpoint(endpoint, zones, nodes))
	}
	d.say("slice %s %s", name, strings.Join(words, " "))
}

// endpoint makes up the conditions and hints of an endpoint.
func (d *dice) endpoint(name string, zones, nodes bool) string {
	var details []string
	switch n := d.IntN(100); {
	case n < 14:
		details = append(details, "ready=false", "serving=true", "terminating=true")
	case n < 20:
		details = append(details, "ready=false")
	case n < 23:
		details = append(details, "ready=false", "serving=false", "terminating=true")
	case n < 26:
		details = append(details, "ready=true", "terminating=true")
	}
	if d.one(3) {
		details = append(details, "node="+of(d, "none", "n2", "n1"))
	}
	if zones && d.one(92) {
		details = append(details, "zones="+of(d, "za", "zb", "za+zb", "zc"))
	}
	if nodes && d.one(92) {
		details = append(details, "nodes="+of(d, "n1", "n2", "n1+n2"))
	}
	if len(details) == 0 {
		return name
	}
	return fmt.Sprintf("%s(%s)", name, strings.Join(details, ","))
}

// questions makes up questions for a quiet point.
func (d *dice) questions(n int) {
	asked := make(map[string]bool)
	for range n {
		question := of(d, "p1", "p1", "p1", "a", "a2", "p2", "x", "x", "x", "y", "node", "node") + arrow + d.target()
		if !asked[question] {
			asked[question] = true
			d.say("%s", question)
		}
	}
}

// target makes up where a question goes: mostly to what a Service that there is
// has.
func (d *dice) target() string {
	s := of(d, d.services...)
	for range 3 {
		if !s.alive {
			s = of(d, d.services...)
		}
	}
	p := of(d, s.ports...)
	exposed := s.kind != "ClusterIP" || d.one(10)
	switch n := d.IntN(100); {
	case n < 25 && exposed:
		return fmt.Sprintf("%s:%d/%s", of(d, "node", "node", "second"), p.nodePort, p.protocol)
	case n < 60 && len(s.reach) > 0:
		return fmt.Sprintf("%s:%d/%s", of(d, s.reach...), p.number, p.protocol)
	case n < 64: // perhaps what nobody has
		return fmt.Sprintf("%s:%d/%s", of(d, "vip", "vip2", "external"), of(d, 80, p.number), p.protocol)
	case n < 68:
		return fmt.Sprintf("%s.cluster:81/tcp", s.name)
	case n < 69:
		return "unallocated:80/tcp"
	case n < 71:
		return fmt.Sprintf("node:80/%s", p.protocol)
	default:
		return fmt.Sprintf("%s.cluster:%d/%s", s.name, p.number, p.protocol)
	}
}
