// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// foreignTables belong to another program. One of them translates addresses, as on most nodes, so
// the kernel goes on translating established connections while our table is gone.
const foreignTables = `
table ip other { chain post { type nat hook postrouting priority 120; ip saddr 192.0.2.1 masquerade; }; set s { type ipv4_addr; elements = { 192.0.2.7 }; }; }
table ip6 other { chain post { type nat hook postrouting priority 120; ip6 saddr 2001:db8::1 masquerade; }; }
table inet filter { chain input { type filter hook input priority 10; tcp dport 9 drop; }; }
`

func (p *proxyNode) listForeignTables() string {
	p.Helper()
	return p.ask("list table ip other") + p.ask("list table ip6 other") + p.ask("list table inet filter")
}

// deletion is one thing that an operator may remove by mistake.
type deletion struct {
	name string
	// rejected is a command that the kernel rejects, because something refers to what it would
	// delete; empty if there is nothing to try first.
	rejected string
	// commands delete, in one transaction. TABLE stands for a family's table, here and in rejected.
	commands string
	// hits reports which frontends of the family it destroys, until they are repaired.
	hits func(target) bool
	// both means that it hits both families, ruleset that every program's tables go, and with them
	// what translates established connections.
	both, ruleset bool
}

// outage begins the outage that a deletion in a family causes. Its end is not known yet.
func (d deletion) outage(family service.Family) *outage {
	return &outage{
		What: fmt.Sprintf("%s %s", family, d.name), From: time.Now(),
		Hits: func(to target, e netnstest.Exchange) bool {
			return (d.both || to.family == family) && d.hits(to) && (d.ruleset || !e.Session)
		},
	}
}

func nobody(target) bool   { return false }
func everyone(target) bool { return true }

// routes are the chains that the frontends of live Services lead to.
type routes map[target]string

// routes asks the kernel for the chain that each frontend leads to.
func (p *proxyNode) routes(family service.Family) routes {
	p.Helper()
	led := routes{}
	for _, to := range allTargets() {
		if to.family != family {
			continue
		}
		m, key := nftrender.SetName("frontends"), fmt.Sprintf("%s . %s . %d", to.addr().Addr(), to.protocol, to.addr().Port())
		if to.kind == nodePort {
			m, key = nftrender.SetName("nodeports"), fmt.Sprintf("%s . %d", to.protocol, to.addr().Port())
		}
		said := p.ask(fmt.Sprintf("get element %s %s { %s }", table(family), m, key))
		_, chain, found := strings.Cut(said, "goto ")
		if !found {
			p.Fatalf("%v leads nowhere: %s", to, said)
		}
		led[to] = strings.Fields(chain)[0]
	}
	return led
}

// picks is the chain that picks the endpoint. External frontends are marked for masquerading first.
func (r routes) picks(to target) string { return strings.Replace(r[to], "external-", "cluster-", 1) }

// through hits the frontends whose endpoint a chain picks.
func (r routes) through(chain string) func(target) bool {
	return func(to target) bool { return r.picks(to) == chain }
}

// shard is the letter of the map that holds a frontend's endpoints, the last letter of the chain's
// name.
func (r routes) shard(to target) string {
	chain := r.picks(to)
	return chain[len(chain)-1:]
}

// sharing hits the frontends with endpoints in the same map as another's. (Endpoints of Services
// with affinity and of node ports are in other maps.)
func (r routes) sharing(with target) func(target) bool {
	return func(to target) bool {
		return to.service.affinity == 0 && to.kind != nodePort && r.shard(to) == r.shard(with)
	}
}

// deletions are the ones to try in one family.
func (r routes) deletions(family service.Family) []deletion {
	pairIP := target{pair, family, "tcp", clusterIP}
	one := fmt.Sprintf("%s . tcp . 80", pairIP.addr().Addr())
	chain, endpoints := r[pairIP], nftrender.SetName("cluster-endpoints")+"-"+r.shard(pairIP)
	frontends := nftrender.SetName("frontends")
	stickyChain := r[target{sticky, family, "tcp", clusterIP}]
	only := func(s liveService) func(target) bool { return func(to target) bool { return to.service == s } }
	return []deletion{
		{name: "the chain of a class", rejected: "delete chain TABLE " + chain, commands: "flush chain TABLE " + chain, hits: r.through(chain)},
		{name: "the chain of one Service", rejected: "delete chain TABLE " + stickyChain, commands: "flush chain TABLE " + stickyChain, hits: only(sticky)},
		{name: "the chain that dispatches", rejected: "delete chain TABLE services", commands: "flush chain TABLE services", hits: everyone},
		{name: "a base chain", commands: "delete chain TABLE nat-prerouting", hits: everyone},
		{name: "a map, flushed", commands: "flush map TABLE " + frontends, hits: func(to target) bool { return to.kind != nodePort }},
		{name: "a map, deleted", rejected: "delete map TABLE " + frontends, commands: "flush chain TABLE services; delete map TABLE " + frontends, hits: everyone},
		{name: "endpoints, flushed", commands: "flush map TABLE " + endpoints, hits: r.sharing(pairIP)},
		{name: "one frontend", commands: "delete element TABLE " + frontends + " { " + one + " }", hits: only(pair)},
		{name: "one endpoint", commands: "delete element TABLE " + endpoints + " { " + one + " . 0 }", hits: only(pair)},
		{name: "a set that decides nothing here", commands: "flush set TABLE " + nftrender.SetName("active-cluster-ips"), hits: nobody},
		{name: "one frontend of each family", commands: r.oneOfEach(), hits: only(pair), both: true},
		{name: "the table", commands: "delete table TABLE", hits: everyone},
		{name: "the ruleset", commands: "flush ruleset", hits: everyone, both: true, ruleset: true},
	}
}

// oneOfEach deletes from the tables of both families in one transaction, which the kernel announces
// in one datagram.
func (r routes) oneOfEach() string {
	var all []string
	for _, family := range service.Families {
		to := target{pair, family, "tcp", clusterIP}
		all = append(all, fmt.Sprintf("delete element %s %s { %s . tcp . 80 }", table(family), nftrender.SetName("frontends"), to.addr().Addr()))
	}
	return strings.Join(all, "; ")
}

// churn keeps changing the endpoints of some quiet Services, so that there is always something to
// write.
type churn struct {
	cache *source.Cache
	stop  chan struct{}
	done  sync.WaitGroup
}

// The quiet Services that churn changes are those from churnFrom on.
const (
	churnFrom  = 20
	churnPause = 2 * time.Millisecond
)

func startChurn(cache *source.Cache) *churn {
	c := &churn{cache: cache, stop: make(chan struct{})}
	c.done.Go(func() {
		for round := 0; ; round++ {
			select {
			case <-c.stop:
				return
			case <-time.After(churnPause):
				c.turn(churnFrom+round%(quietServices-churnFrom), round)
			}
		}
	})
	return c
}

// turn changes the endpoints of a Service.
func (c *churn) turn(n, round int) {
	for _, family := range service.Families {
		slice := newSlice(quietKey(n), family, []netip.Addr{
			addr(family, "10.246.1.%d", "fd00:10:246:1::%d", round%200+1),
			addr(family, "10.246.2.%d", "fd00:10:246:2::%d", n),
		})
		c.cache.SetSlice(slice)
	}
}

// end stops, and restores the endpoints.
func (c *churn) end() {
	close(c.stop)
	c.done.Wait()
	fillQuiet(c.cache, churnFrom, quietServices)
}

// isUnchanged reports whether churn leaves a Service (or the node) as it is.
func isUnchanged(key service.Key) bool {
	for n := churnFrom; n < quietServices; n++ {
		if key == quietKey(n) {
			return false
		}
	}
	return true
}
