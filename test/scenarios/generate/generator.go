// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// generator makes a draft. It remembers of each Service what makes questions about it
// worth asking; what is right it does not know.
type generator struct {
	*rand.Rand
	sofar    draft
	services []*made
}

// made is a Service that was made up.
type made struct {
	name  string
	ports []port
	// kind is its type, alive reports whether it exists.
	kind  string
	alive bool
	// slices are the names of its slices, reach those of its external addresses.
	slices, reach []string
}

// port is one of a Service's ports.
type port struct {
	name             string
	number, nodePort int
	target           int
	protocol         string
}

func (p port) String() string {
	text := fmt.Sprintf("%s:%d:%d", p.name, p.number, p.target)
	if p.nodePort != 0 {
		text += fmt.Sprintf(":%d", p.nodePort)
	}
	if p.protocol != "tcp" {
		text += "/" + strings.ToUpper(p.protocol)
	}
	return text
}

func newGenerator(seed uint64, mode string) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(seed, 20260101)), sofar: draft{seed: seed, mode: mode}}
}

func (g *generator) say(format string, args ...any) {
	g.sofar.lines = append(g.sofar.lines, fmt.Sprintf(format, args...))
}

// one is true in so many of a hundred cases.
func (g *generator) one(percent int) bool { return g.IntN(100) < percent }

// of chooses one of some.
func of[T any](g *generator, some ...T) T { return some[g.IntN(len(some))] }

// Bounds of a draft. Services get ClusterIPs by their number, and somebody answers
// beyond at the first eight only, one of which is the sentinel's.
const (
	servicesMax = 6
	changesMin  = 5
	changesMax  = 25
)

// draft makes up a whole scenario.
func (g *generator) draft() draft {
	g.flags()
	for range 2 + g.IntN(servicesMax-1) {
		g.newService()
	}
	g.questions(6)
	for left := changesMin + g.IntN(changesMax-changesMin+1); left > 0; {
		// Some changes come alone, some meet on their way.
		burst := min(left, of(g, 1, 1, 2, 3, 5))
		for range burst {
			g.change()
		}
		left -= burst
		g.questions(3 + g.IntN(5))
	}
	return g.sofar
}

// flags makes up the flags of the proxy; most scenarios have none.
func (g *generator) flags() {
	if g.one(15) {
		g.say("flag --masquerade-all=true")
	}
	if g.one(30) {
		g.say("flag %s", of(g,
			"--nodeport-addresses=192.168.0.0/24", "--nodeport-addresses=192.168.0.0/24,2001:db8:1::/64", "--nodeport-addresses=10.99.0.0/16",
			"--nodeport-addresses=primary", "--nodeport-addresses=unset", "--nodeport-addresses=10.99.0.0/16,fd00:99::/64"))
	}
	if g.one(40) {
		g.say("flag %s", of(g,
			"--cluster-cidr=unset", "--cluster-cidr=10.244.0.0/16", "--detect-local-mode=NodeCIDR",
			"--detect-local-mode=BridgeInterface --pod-bridge-interface=veth-p1",
			"--detect-local-mode=InterfaceNamePrefix --pod-interface-name-prefix=veth"))
	}
	if g.one(10) {
		g.say("node zone=none")
	}
}

// newService makes up a Service with slices, or brings one back.
func (g *generator) newService() {
	var gone []*made
	for _, s := range g.services {
		if !s.alive {
			gone = append(gone, s)
		}
	}
	var s *made
	switch {
	case len(gone) > 0 && (g.one(60) || len(g.services) == servicesMax):
		s = of(g, gone...)
	case len(g.services) == servicesMax:
		g.changeService(of(g, g.services...))
		return
	default:
		s = &made{name: []string{"s", "t", "u", "v", "w", "k"}[len(g.services)]}
		g.services = append(g.services, s)
	}
	s.alive = true
	g.newPorts(s)
	s.kind = of(g, "ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer")
	words := []string{"type=" + s.kind, s.portsWord()}
	if s.kind == "LoadBalancer" {
		words = append(words, s.at("ingress=", of(g, "vip", "vip", "vip2", "vip,vip2")))
	}
	if s.kind != "ClusterIP" && g.one(40) {
		words = append(words, "etp=Local")
	}
	words = append(words, g.someFields(s, 2)...)
	g.say("service %s %s", s.name, strings.Join(words, " "))
	if g.one(85) {
		g.setSlice(s)
	}
}

// newPorts makes up the ports of a Service. Each Service has separate node ports,
// as the API has it, but now and then.
func (g *generator) newPorts(s *made) {
	number := slices.Index(g.services, s)
	first := port{name: of(g, "p80", "p80", "p80", ""), number: 80, protocol: "tcp", target: of(g, 8080, 8080, 9090), nodePort: 30100 + 10*number}
	if g.one(20) {
		first.protocol = "udp"
	}
	if g.one(3) {
		first.nodePort = 30100
	}
	s.ports = []port{first}
	if g.one(35) {
		second := port{name: "q", number: 81, protocol: of(g, "tcp", "tcp", "udp"), target: 8081, nodePort: first.nodePort + 1}
		if first.protocol != second.protocol && g.one(50) {
			second.number, second.nodePort = 80, first.nodePort
		}
		if s.ports[0].name == "" {
			s.ports[0].name = "p80"
		}
		s.ports = append(s.ports, second)
	}
}

// portsWord is the word of a statement that says the ports.
func (s *made) portsWord() string {
	var words []string
	for _, p := range s.ports {
		if s.kind == "ClusterIP" {
			p.nodePort = 0
		}
		words = append(words, p.String())
	}
	return "ports=" + strings.Join(words, ",")
}

// at is a word of a statement with addresses of a Service. Questions go there from then on.
func (s *made) at(key, names string) string {
	for name := range strings.SplitSeq(names, ",") {
		name, _, _ = strings.Cut(name, ":")
		if name != "none" && name != "hostname" && !slices.Contains(s.reach, name) {
			s.reach = append(s.reach, name)
		}
	}
	return key + names
}

// someFields makes up as many other fields of a Service.
func (g *generator) someFields(s *made, n int) []string {
	fields := []func() string{
		func() string { return "itp=" + of(g, "Local", "Cluster") },
		func() string { return "etp=" + of(g, "Local", "Local", "Cluster") },
		func() string { return "etp=" + of(g, "Local", "Cluster") },
		func() string { return s.at("external=", of(g, "external", "external", "vip2", "node", "none")) },
		func() string { return "labels=" + of(g, "version:1", "version:2") },
	}
	if g.one(8) {
		fields = append(fields, func() string { return "affinity=" + of(g, "300", "10800", "None") })
	}
	if g.one(8) {
		fields = append(fields, func() string { return "families=" + of(g, "ipv4", "ipv4,ipv6", "ipv6,ipv4") })
	}
	if s.kind == "LoadBalancer" {
		fields = append(fields,
			func() string {
				return "ingress=" + of(g, "vip", "vip2", "vip,vip2", "vip2:Proxy,vip", "hostname:lb.example", "none")
			},
			func() string {
				return "ranges=" + of(g, "allowed", "allowed", "node-range", "allowed,cluster-cidr", "everything,allowed", "nowhere-range", "none", "203.0.113.0/25", "2001:db8:ffff::/112,bad")
			})
	}
	var words []string
	for range g.IntN(n + 1) {
		words = append(words, of(g, fields...)())
	}
	return words
}

// change makes up one change of what the API says.
func (g *generator) change() {
	s := of(g, g.services...)
	switch n := g.IntN(100); {
	case n < 50:
		g.setSlice(s)
	case n < 72 && s.alive:
		g.changeService(s)
	case n < 80 && s.alive:
		g.say("delete service %s", s.name)
		s.alive = false
		if g.one(30) { // and at once again
			g.newService()
		}
	case n < 86 && len(s.slices) > 0:
		slice := of(g, s.slices...)
		g.say("delete slice %s of=%s", slice, s.name)
		s.slices = slices.DeleteFunc(s.slices, func(name string) bool { return name == slice })
	case n < 92:
		g.say("node zone=%s", of(g, "za", "zb", "none"))
	default:
		g.newService()
	}
}

// changeService changes fields of a Service that there is.
func (g *generator) changeService(s *made) {
	if !s.alive {
		return
	}
	words := g.someFields(s, 3)
	if g.one(30) {
		s.kind = of(g, "ClusterIP", "NodePort", "LoadBalancer")
		if g.one(30) {
			g.newPorts(s)
		}
		words = append([]string{"type=" + s.kind, s.portsWord()}, words...)
	}
	if len(words) == 0 {
		words = []string{"labels=touched:yes"}
	}
	g.say("service %s %s", s.name, strings.Join(words, " "))
}

// setSlice makes up a slice of a Service. Hints come in most or none of the
// endpoints of a slice, since they mean nothing otherwise.
func (g *generator) setSlice(s *made) {
	name := of(g, "main", "main", "main", "two")
	if !slices.Contains(s.slices, name) {
		s.slices = append(s.slices, name)
	}
	words := []string{"of=" + s.name}
	if g.one(12) {
		p := s.ports[0]
		word := fmt.Sprintf("ports=%s:%d", of(g, p.name, p.name, "other", "nil"), of(g, 8080, 8081, 9090))
		if p.protocol != "tcp" {
			word += "/" + strings.ToUpper(p.protocol)
		}
		words = append(words, word)
	}
	if g.one(5) {
		words = append(words, "families="+of(g, "ipv4", "ipv6"))
	}
	if g.one(2) {
		words = append(words, "labels=service.kubernetes.io/headless:")
	}
	zones, nodes := g.one(30), g.one(12)
	names := []string{"a", "a", "b", "b", "c", "a2", "p1", "p2", "node"}
	g.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	names = names[:of(g, 0, 1, 1, 2, 2, 2, 3, 4)]
	slices.Sort(names)
	for _, endpoint := range slices.Compact(names) {
		words = append(words, g.endpoint(endpoint, zones, nodes))
	}
	g.say("slice %s %s", name, strings.Join(words, " "))
}

// endpoint makes up the conditions and hints of an endpoint.
func (g *generator) endpoint(name string, zones, nodes bool) string {
	var details []string
	switch n := g.IntN(100); {
	case n < 14:
		details = append(details, "ready=false", "serving=true", "terminating=true")
	case n < 20:
		details = append(details, "ready=false")
	case n < 23:
		details = append(details, "ready=false", "serving=false", "terminating=true")
	case n < 26:
		details = append(details, "ready=true", "terminating=true")
	}
	if g.one(3) {
		details = append(details, "node="+of(g, "none", "n2", "n1"))
	}
	if zones && g.one(92) {
		details = append(details, "zones="+of(g, "za", "zb", "za+zb", "zc"))
	}
	if nodes && g.one(92) {
		details = append(details, "nodes="+of(g, "n1", "n2", "n1+n2"))
	}
	if len(details) == 0 {
		return name
	}
	return fmt.Sprintf("%s(%s)", name, strings.Join(details, ","))
}

// questions makes up questions for a quiet point.
func (g *generator) questions(n int) {
	asked := make(map[string]bool)
	for range n {
		question := of(g, "p1", "p1", "p1", "a", "a2", "p2", "x", "x", "x", "y", "node", "node") + arrow + g.target()
		if !asked[question] {
			asked[question] = true
			g.say("%s", question)
		}
	}
}

// target makes up where a question goes: mostly to what a Service that there is
// has.
func (g *generator) target() string {
	s := of(g, g.services...)
	for range 3 {
		if !s.alive {
			s = of(g, g.services...)
		}
	}
	p := of(g, s.ports...)
	exposed := s.kind != "ClusterIP" || g.one(10)
	switch n := g.IntN(100); {
	case n < 25 && exposed:
		return fmt.Sprintf("%s:%d/%s", of(g, "node", "node", "second"), p.nodePort, p.protocol)
	case n < 60 && len(s.reach) > 0:
		return fmt.Sprintf("%s:%d/%s", of(g, s.reach...), p.number, p.protocol)
	case n < 64: // perhaps what nobody has
		return fmt.Sprintf("%s:%d/%s", of(g, "vip", "vip2", "external"), of(g, 80, p.number), p.protocol)
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
