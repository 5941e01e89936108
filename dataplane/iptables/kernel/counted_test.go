// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/rendertest"
)

const countedPort = "AAAAAAAAAAAAAAAA"

var (
	countedChain = render.ChainID(render.NAT, "KUBE-SVC-"+countedPort)
	countedPlace = place{endpoint: netip.MustParseAddrPort("10.0.0.5:8080")}
	countedAt    = service.Frontend{Addr: netip.MustParseAddr("172.20.0.1"), Port: 80, Protocol: service.TCP}
)

// counting is a meter that found a service port with one endpoint.
func counting(n uint64) *meter {
	return &meter{
		live:   counts{countedChain: {countedPlace: n}},
		ports:  map[string]service.Frontend{countedPort: countedAt},
		served: map[service.Frontend]bool{countedAt: true},
	}
}

// TestCounted_ReadingsAndWrites: in any order of readings and writes, nothing counts twice, although the counters of
// written chains start again from 0.
func TestCounted_ReadingsAndWrites(t *testing.T) {
	c := newCounted()
	changes := []dataplane.Change{{ID: countedChain}}
	end := func(when string, n, want uint64) {
		t.Helper()
		got := c.add(counting(n))
		pair := traffic.Pair{Frontend: countedAt, Endpoint: countedPlace.endpoint}
		if got.Frontends[countedAt].Connections != want || got.Endpoints[pair].Connections != want {
			t.Errorf("%s: %v, want %d", when, got, want)
		}
	}
	read := func(when string, n, want uint64) {
		t.Helper()
		c.beginReading()
		end(when, n, want)
	}
	write := func(landed bool, during func()) {
		c.beginWrite(changes)
		if during != nil {
			during()
		}
		c.endWrite(landed)
	}
	read("at first", 5, 5)
	read("more", 7, 7)
	write(true, func() { read("during a write", 7, 7) })
	read("new rules that have passed the deleted ones", 8, 15)
	c.beginReading()
	write(true, nil)
	end("a reading that began before a write, and found the deleted rules", 9, 15)
	read("the new ones", 3, 18)
	c.beginWrite(changes)
	c.beginReading()
	c.endWrite(true)
	end("a reading that began during a write", 4, 18)
	read("after it", 6, 24)
	write(false, nil)
	read("a write that failed", 8, 26)
	read("another process writes", 0, 26)
	read("it wrote another chain", 9, 27)
	read("another process writes again", 2, 27)
	read("it wrote this chain", 3, 30)
	for range 2 {
		c.beginReading()
		c.beginWrite([]dataplane.Change{{ID: render.ChainID(render.NAT, render.ChainServices)}})
		end("a reading that began before a write of another chain", 0, 30)
		c.endWrite(true)
	}
	read("after it", 4, 31)
	c.beginReading() // and fails
	write(true, nil)
	read("after a reading that failed", 1, 32)
}

// TestCounted_TotalsOfGoneSubjects: a total survives one reading that does not find its subject, but not two.
// Connections to removed endpoints still count for their service port.
func TestCounted_TotalsOfGoneSubjects(t *testing.T) {
	c := newCounted()
	add := func(when string, m *meter, frontends int, connections uint64, endpoints int) {
		t.Helper()
		got := c.add(m)
		if len(got.Frontends) != frontends || got.Frontends[countedAt].Connections != connections || len(got.Endpoints) != endpoints {
			t.Errorf("%s: %v", when, got)
		}
	}
	nothing := func() *meter { return &meter{} }
	add("at first", counting(5), 1, 5, 1)
	add("for a moment, there were no rules", nothing(), 1, 5, 1)
	add("repaired", counting(1), 1, 6, 1)
	refusing := func() *meter {
		return &meter{
			live:   counts{render.ChainID(render.Filter, render.ChainServices): {{frontend: countedAt}: 3}},
			served: map[service.Frontend]bool{countedAt: true},
		}
	}
	for range 3 {
		c.add(refusing())
	}
	add("no endpoints", refusing(), 1, 6, 0)
	if got := c.add(refusing()).Frontends[countedAt].Refused[traffic.NoEndpoints]; got != 3 {
		t.Errorf("%d refusals, want 3", got)
	}
	add("endpoints again", counting(2), 1, 8, 1)
	if got := c.add(counting(2)).Frontends[countedAt].Refused[traffic.NoEndpoints]; got != 3 {
		t.Errorf("%d refusals, want the 3 of before", got)
	}
	c.add(nothing())
	add("deleted", nothing(), 0, 0, 0)
	if len(c.last)+len(c.totals)+len(c.missing)+len(c.frontends) > 0 {
		t.Errorf("%+v is remembered", c)
	}
	c.add(counting(0))
	if len(c.last)+len(c.totals) > 0 {
		t.Errorf("counters without counts are remembered: %+v", c)
	}
}

// TestPrintedCounter: printedCounter reads both forms in which the programs print counters, and rejects other lines.
func TestPrintedCounter(t *testing.T) {
	for _, line := range []string{
		`[7:420] -A KUBE-SEP-AAAAAAAAAAAAAAAA -d 10.0.0.1/32 -p tcp -m comment --comment "ns/web -A x -c 5 -> " -m tcp --dport 80 -j DNAT --to-destination 10.0.0.5:8080`,
		`-A KUBE-SEP-AAAAAAAAAAAAAAAA -d 10.0.0.1/32 -p tcp -m comment --comment "ns/web -A x -c 5 -> " -m tcp --dport 80 -c 7 420 -j DNAT --to-destination 10.0.0.5:8080`,
	} {
		chain, c, ok := printedCounter(line)
		want := service.Frontend{Addr: netip.MustParseAddr("10.0.0.1"), Port: 80, Protocol: service.TCP}
		if !ok || chain != "KUBE-SEP-AAAAAAAAAAAAAAAA" || c.packets != 7 || c.endpoint != countedPlace.endpoint || c.frontend != want {
			t.Errorf("%s: chain %s, %+v, %v", line, chain, c, ok)
		}
	}
	for _, line := range []string{"", "*nat", ":KUBE-SERVICES - [0:0]", "-N KUBE-SERVICES", "COMMIT", "# -A", "[x:1] -A KUBE-SERVICES", "[-A"} {
		if chain, c, ok := printedCounter(line); ok {
			t.Errorf("%q: chain %s, %+v", line, chain, c)
		}
	}
}

// TestKernelCounters: the counters of all kinds of frontends and protocols are found, also in a table that
// iptables-save does not print because of a foreign rule.
func TestKernelCounters(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		var changes []dataplane.Change
		for _, o := range rendertest.IPTablesNode(k.family, rendertest.IPTablesTrees(k.family)) {
			changes = append(changes, changeOf(service.Node, nil, &o))
		}
		k.write(changes...)
		k.stranger("nat", "-N", countedChain.Name)
		if k.family == service.IPv4 { // ip6tables-nft 1.8.9 does not set counters
			k.stranger("nat", "-A", countedChain.Name, "-c", "7", "420", "-p", "tcp", "-j", "DNAT", "--to-destination", "10.0.0.5:8080")
		}
		saved, places := k.counters(), 0
		for _, of := range saved.live {
			places += len(of)
		}
		if len(saved.ports) < 300 || places < 500 || len(saved.served) < 700 {
			k.Errorf("%d service ports, %d frontends and %d places", len(saved.ports), len(saved.served), places)
		}
		if n := saved.live[countedChain][countedPlace]; n != 7 && k.family == service.IPv4 {
			k.Errorf("%d connections, want 7", n)
		}
		if k.variant != NFT {
			return
		}
		k.foreign(nftRules["masquerade"])
		k.foreign(nftRules["named counter"])
		listed := k.counters()
		for chain, want := range saved.live {
			if got := listed.live[chain]; !maps.Equal(got, want) {
				k.Errorf("%v: %v are listed, and %v were saved", chain, got, want)
			}
		}
		if !maps.Equal(listed.ports, saved.ports) || !maps.Equal(listed.served, saved.served) || !maps.Equal(listed.endpoints, saved.endpoints) {
			k.Errorf("%d service ports, %d frontends and %d chains of endpoints are listed, or others than were saved",
				len(listed.ports), len(listed.served), len(listed.endpoints))
		}
	})
}

func (k *kernelTest) counters() *meter {
	k.Helper()
	m, err := readCounters(k.Context(), k.tool)
	if err != nil {
		k.Fatal(err)
	}
	return m
}

// FuzzCounters: rules of any form do not make the reading of counters panic.
func FuzzCounters(f *testing.F) {
	f.Add("[1:2] -A KUBE-SVC-AAAAAAAAAAAAAAAA -p tcp -j DNAT --to-destination 10.0.0.5:8080")
	f.Add("[x -A KUBE-SERVICES -d 10.0.0.1/32 -p tcp -m tcp --dport -j")
	f.Add("-A KUBE-SERVICES -d 10.0.0.1/32 -c -c 5 -j KUBE-SVC-AAAAAAAAAAAAAAAA")
	f.Fuzz(func(_ *testing.T, line string) {
		name, c, _ := printedCounter(line)
		for _, chain := range []string{name, "KUBE-SVC-AAAAAAAAAAAAAAAA", render.ChainServices, render.ChainNodePorts} {
			of := c
			of.at(render.ChainID(render.Filter, chain))
			of.dispatches(render.ChainID(render.NAT, chain))
		}
	})
}
