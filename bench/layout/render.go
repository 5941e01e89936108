package main

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

const (
	servicePort  = 80
	endpointPort = 8080
	localPods    = 110 // endpoints on this node, which hairpin rules are for

	serviceNet  = 0x0a600000 // 10.96.0.0/16
	endpointNet = 0x0a800000 // 10.128.0.0/9
)

// A layout is one way to write the nat table.
type layout struct {
	Leaf int  // elements per leaf of the dispatch tree; 0 is one flat chain
	Diet bool // one DNAT rule per endpoint in the Service chain, instead of three rules and a chain
}

func (l layout) String() string {
	dispatch, endpoints := "flat", "three"
	if l.Leaf > 0 {
		dispatch = fmt.Sprintf("tree/%d", l.Leaf)
	}
	if l.Diet {
		endpoints = "one"
	}
	return dispatch + " " + endpoints
}

type service struct {
	name      string
	address   uint32
	endpoints []uint32
}

// generate draws count Services with distinct addresses in address order, and one more that is not among them.
func generate(count, endpoints int) (services []service, extra service) {
	random := rand.New(rand.NewPCG(1, 2))
	hosts := random.Perm(1<<16 - 2)[:count+1]
	slices.Sort(hosts[:count])
	next := uint32(endpointNet)
	all := make([]service, count+1)
	for i := range all {
		all[i] = service{name: fmt.Sprintf("namespace-%d/service-%d:http", i%50, i), address: serviceNet + 1 + uint32(hosts[i])}
		for range endpoints {
			next++
			all[i].endpoints = append(all[i].endpoints, next)
		}
	}
	return all[:count], all[count]
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

func (s service) chain() string { return "KUBE-SVC-" + hash(s.name+"udp") }

func (s service) match() string {
	return fmt.Sprintf(`-d %s/32 -p udp -m comment --comment "%s cluster IP" -m udp --dport %d`, dotted(s.address), s.name, servicePort)
}

func (s service) element() element {
	return element{s.address, s.match() + " -j " + s.chain()}
}

func separate(s service, endpoint uint32) string {
	return "KUBE-SEP-" + hash(fmt.Sprintf("%sudp%s:%d", s.name, dotted(endpoint), endpointPort))
}

// A text is what iptables-restore is to load. A chain comes after those it jumps to.
type text struct {
	chains   []chain
	jumps    []string // from built-in chains
	removals []string
}

type chain struct {
	name  string
	rules []string
}

func (t *text) chain(name string, rules ...string) {
	t.chains = append(t.chains, chain{name, rules})
}

// remove empties a chain and deletes it once all rules are in place.
func (t *text) remove(name string) {
	t.chain(name)
	t.removals = append(t.removals, "-X "+name)
}

func (t *text) rules() int {
	count := len(t.jumps)
	for _, c := range t.chains {
		count += len(c.rules)
	}
	return count
}

// inputs writes t as inputs for iptables-restore of at most limit chains each; 0 is one input. The nft variant keeps
// the chains of an input in a sorted list and looks them up there, so that names in descending order and short inputs are faster.
func (t *text) inputs(limit int) []string {
	if limit == 0 {
		limit = len(t.chains)
	}
	var inputs []string
	for part := range slices.Chunk(t.chains, limit) {
		var lines, rules []string
		for _, c := range part {
			lines = append(lines, ":"+c.name+" - [0:0]")
			rules = append(rules, c.rules...)
		}
		slices.Sort(lines)
		slices.Reverse(lines)
		inputs = append(inputs, "*nat\n"+strings.Join(slices.Concat(lines, rules), "\n")+"\n")
	}
	inputs[len(inputs)-1] += strings.Join(append(slices.Concat(t.jumps, t.removals), ""), "\n")
	for i := range inputs {
		inputs[i] += "COMMIT\n"
	}
	return inputs
}

// service writes the chain of s and, unless on a diet, one for each of its endpoints.
func (l layout) service(t *text, s service) {
	chain := s.chain()
	rules := []string{fmt.Sprintf("-A %s ! -s 10.244.0.0/16 %s -j KUBE-MARK-MASQ", chain, s.match())}
	for i, endpoint := range s.endpoints {
		statistic := ""
		if left := len(s.endpoints) - i; left > 1 {
			statistic = fmt.Sprintf("-m statistic --mode random --probability %.10f ", 1/float64(left))
		}
		translate := fmt.Sprintf("-j DNAT --to-destination %s:%d", dotted(endpoint), endpointPort)
		if l.Diet {
			rules = append(rules, fmt.Sprintf("-A %s -p udp %s%s", chain, statistic, translate))
			continue
		}
		own := separate(s, endpoint)
		rules = append(rules, fmt.Sprintf("-A %s %s-j %s", chain, statistic, own))
		t.chain(own,
			fmt.Sprintf("-A %s -s %s/32 -j KUBE-MARK-MASQ", own, dotted(endpoint)),
			fmt.Sprintf("-A %s -p udp -m udp %s", own, translate))
	}
	t.chain(chain, rules...)
}

func elements(services []service) []element {
	found := make([]element, len(services))
	for i, s := range services {
		found[i] = s.element()
	}
	return found
}

// dispatch is the tree over the Services; a flat chain is a tree of one leaf.
func (l layout) dispatch(services []service) *node {
	leaf := l.Leaf
	if leaf == 0 {
		leaf = len(services)
	}
	return grow(elements(services), leaf)
}

// tree writes a whole tree whose root has a chain name of its own.
func tree(t *text, root *node, name, match, tag string) {
	var nodes []*node
	root.walk(0, func(n *node, _ int) { nodes = append(nodes, n) })
	for _, n := range slices.Backward(nodes) {
		chain := name
		if n != root {
			chain = n.name(tag)
		}
		t.chain(chain, n.rules(chain, match, tag)...)
	}
}

// table writes everything.
func (l layout) table(services []service) *text {
	t := &text{}
	t.chain("KUBE-MARK-MASQ", "-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000")
	var hairpins []string
	if l.Diet {
		tree(t, l.hairpins(services), "KUBE-SVC-H", "-s", "H")
		hairpins = []string{"-A KUBE-POSTROUTING -m conntrack --ctstate DNAT -j KUBE-SVC-H"}
	}
	t.chain("KUBE-POSTROUTING", slices.Concat(hairpins, []string{
		"-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
		"-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000",
		`-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully`,
	})...)
	for _, s := range services {
		l.service(t, s)
	}
	tree(t, l.dispatch(services), "KUBE-SERVICES", "-d", "T")
	t.jumps = []string{
		`-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`,
		`-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`,
		`-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING`,
	}
	return t
}

// hairpins is the tree of rules that send a local endpoint's connection to itself through masquerading.
func (l layout) hairpins(services []service) *node {
	var found []element
	for _, s := range services {
		for _, e := range s.endpoints {
			if len(found) < localPods {
				found = append(found, element{e, fmt.Sprintf("-s %[1]s/32 -d %[1]s/32 -j KUBE-MARK-MASQ", dotted(e))})
			}
		}
	}
	return grow(found, 32)
}

// replace writes what changes when the endpoint of s at index 0 is replaced by the one at address next.
func (l layout) replace(s service, next uint32) (*text, service) {
	t := &text{}
	changed := s
	changed.endpoints = slices.Clone(s.endpoints)
	changed.endpoints[0] = next
	if l.Diet {
		l.service(t, changed)
		return t, changed
	}
	// kube-proxy writes the chains of all endpoints of a Service that changed.
	l.service(t, changed)
	t.remove(separate(s, s.endpoints[0]))
	return t, changed
}

// whole adds the flat dispatch chain to t, as kube-proxy does in every sync.
func (l layout) whole(t *text, services []service) {
	tree(t, l.dispatch(services), "KUBE-SERVICES", "-d", "T")
}

// add writes what changes when extra joins services: its chains, and the leaf it falls into or the flat chain.
func (l layout) add(services []service, extra service) *text {
	t := &text{}
	l.service(t, extra)
	at, _ := slices.BinarySearchFunc(services, extra.address, func(s service, a uint32) int { return int(int64(s.address) - int64(a)) })
	joined := slices.Insert(slices.Clone(services), at, extra)
	if l.Leaf == 0 {
		l.whole(t, joined)
		return t
	}
	before := map[string]bool{}
	l.dispatch(services).walk(0, func(n *node, _ int) { before[strings.Join(n.rules("x", "-d", "T"), "\n")] = true })
	root := l.dispatch(joined)
	root.walk(0, func(n *node, _ int) {
		chain := "KUBE-SERVICES"
		if n != root {
			chain = n.name("T")
		}
		if !before[strings.Join(n.rules("x", "-d", "T"), "\n")] {
			t.chain(chain, n.rules(chain, "-d", "T")...)
		}
	})
	return t
}

// extremes finds the Services that a packet reaches after the fewest and the most rules of the dispatch.
func (l layout) extremes(services []service) (first, last service, fewest, most int) {
	fewest = 1 << 30
	byAddress := map[uint32]service{}
	for _, s := range services {
		byAddress[s.address] = s
	}
	l.dispatch(services).walk(0, func(n *node, passed int) {
		for i, e := range n.elements {
			if cost := passed + i + 1; cost < fewest {
				first, fewest = byAddress[e.address], cost
			}
			if cost := passed + i + 1; cost > most {
				last, most = byAddress[e.address], cost
			}
		}
	})
	return first, last, fewest, most
}
