package generate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// dice makes a draft. It remembers of each Service what makes questions about it
// worth asking; what is right it does not know.
type dice struct {
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

func newDice(seed uint64, mode string) *dice {
	return &dice{Rand: rand.New(rand.NewPCG(seed, 20260101)), sofar: draft{seed: seed, mode: mode}}
}

func (d *dice) say(format string, args ...any) {
	d.sofar.lines = append(d.sofar.lines, fmt.Sprintf(format, args...))
}

// one is true in so many of a hundred cases.
func (d *dice) one(percent int) bool { return d.IntN(100) < percent }

// of chooses one of some.
func of[T any](d *dice, some ...T) T { return some[d.IntN(len(some))] }

// Bounds of a draft. Services get ClusterIPs by their number, and somebody answers
// beyond at the first eight only, one of which is the sentinel's.
const (
	servicesMax = 6
	changesMin  = 5
	changesMax  = 25
)

// draft makes up a whole scenario.
func (d *dice) draft() draft {
	d.flags()
	for range 2 + d.IntN(servicesMax-1) {
		d.newService()
	}
	d.questions(6)
	for left := changesMin + d.IntN(changesMax-changesMin+1); left > 0; {
		// Some changes come alone, some meet on their way.
		burst := min(left, of(d, 1, 1, 2, 3, 5))
		for range burst {
			d.change()
		}
		left -= burst
		d.questions(3 + d.IntN(5))
	}
	return d.sofar
}

// flags makes up the flags of the proxy; most scenarios have none.
func (d *dice) flags() {
	if d.one(15) {
		d.say("flag --masquerade-all=true")
	}
	if d.one(30) {
		d.say("flag %s", of(d,
			"--nodeport-addresses=192.168.0.0/24", "--nodeport-addresses=192.168.0.0/24,2001:db8:1::/64", "--nodeport-addresses=10.99.0.0/16",
			"--nodeport-addresses=primary", "--nodeport-addresses=unset", "--nodeport-addresses=10.99.0.0/16,fd00:99::/64"))
	}
	if d.one(40) {
		d.say("flag %s", of(d,
			"--cluster-cidr=unset", "--cluster-cidr=10.244.0.0/16", "--detect-local-mode=NodeCIDR",
			"--detect-local-mode=BridgeInterface --pod-bridge-interface=veth-p1",
			"--detect-local-mode=InterfaceNamePrefix --pod-interface-name-prefix=veth"))
	}
	if d.one(10) {
		d.say("node zone=none")
	}
}

// newService makes up a Service with slices, or brings one back.
func (d *dice) newService() {
	var gone []*made
	for _, s := range d.services {
		if !s.alive {
			gone = append(gone, s)
		}
	}
	var s *made
	switch {
	case len(gone) > 0 && (d.one(60) || len(d.services) == servicesMax):
		s = of(d, gone...)
	case len(d.services) == servicesMax:
		d.changeService(of(d, d.services...))
		return
	default:
		s = &made{name: []string{"s", "t", "u", "v", "w", "k"}[len(d.services)]}
		d.services = append(d.services, s)
	}
	s.alive = true
	d.newPorts(s)
	s.kind = of(d, "ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer")
	words := []string{"type=" + s.kind, s.portsWord()}
	if s.kind == "LoadBalancer" {
		words = append(words, s.at("ingress=", of(d, "vip", "vip", "vip2", "vip,vip2")))
	}
	if s.kind != "ClusterIP" && d.one(40) {
		words = append(words, "etp=Local")
	}
	words = append(words, d.someFields(s, 2)...)
	d.say("service %s %s", s.name, strings.Join(words, " "))
	if d.one(85) {
		d.setSlice(s)
	}
}

// newPorts makes up the ports of a Service. Each Service has node ports of its own,
// as the API has it, but now and then.
func (d *dice) newPorts(s *made) {
	number := slices.Index(d.services, s)
	first := port{name: of(d, "p80", "p80", "p80", ""), number: 80, protocol: "tcp", target: of(d, 8080, 8080, 9090), nodePort: 30100 + 10*number}
	if d.one(20) {
		first.protocol = "udp"
	}
	if d.one(3) {
		first.nodePort = 30100
	}
	s.ports = []port{first}
	if d.one(35) {
		second := port{name: "q", number: 81, protocol: of(d, "tcp", "tcp", "udp"), target: 8081, nodePort: first.nodePort + 1}
		if first.protocol != second.protocol && d.one(50) {
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
func (d *dice) someFields(s *made, n int) []string {
	fields := []func() string{
		func() string { return "itp=" + of(d, "Local", "Cluster") },
		func() string { return "etp=" + of(d, "Local", "Local", "Cluster") },
		func() string { return "etp=" + of(d, "Local", "Cluster") },
		func() string { return s.at("external=", of(d, "external", "external", "vip2", "node", "none")) },
		func() string { return "labels=" + of(d, "version:1", "version:2") },
	}
	if d.one(8) {
		fields = append(fields, func() string { return "affinity=" + of(d, "300", "10800", "None") })
	}
	if d.one(8) {
		fields = append(fields, func() string { return "families=" + of(d, "ipv4", "ipv4,ipv6", "ipv6,ipv4") })
	}
	if s.kind == "LoadBalancer" {
		fields = append(fields,
			func() string {
				return "ingress=" + of(d, "vip", "vip2", "vip,vip2", "vip2:Proxy,vip", "hostname:lb.example", "none")
			},
			func() string {
				return "ranges=" + of(d, "allowed", "allowed", "node-range", "allowed,cluster-cidr", "everything,allowed", "nowhere-range", "none", "203.0.113.0/25", "2001:db8:ffff::/112,bad")
			})
	}
	var words []string
	for range d.IntN(n + 1) {
		words = append(words, of(d, fields...)())
	}
	return words
}

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
