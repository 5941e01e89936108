// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
)

// scenario is what happens in one simulation.
type scenario struct {
	// seed decides the settings, and which packets are sent when all is settled.
	seed   uint64
	events []event
}

// event is one thing that happens. All details follow from the variant, so that an
// event means the same wherever it stands in a list.
type event struct {
	do      verb
	n, m    int
	variant uint64
}

// String formats the event as an element of a Go literal.
func (e event) String() string {
	return fmt.Sprintf("{%s, %d, %d, %#x}", e.do, e.n, e.m, e.variant)
}

// literal formats events as Go, one per line.
func literal(events []event) string {
	var b strings.Builder
	b.WriteString("[]event{\n")
	for _, e := range events {
		fmt.Fprintf(&b, "\t%v,\n", e)
	}
	b.WriteString("}")
	return b.String()
}

// verb says what an event does. Its text is the name of the constant, so that a
// printed event is Go.
type verb string

// What the API says. N is the number of a Service, M that of one of its slices.
const (
	setService    verb = "setService"
	removeService verb = "removeService"
	setSlice      verb = "setSlice"
	removeSlice   verb = "removeSlice"
	// moveSlice lets a slice name another Service as its owner; the variant says which.
	moveSlice verb = "moveSlice"
	setNode   verb = "setNode"
	// setHosts changes the addresses of the host's interfaces.
	setHosts verb = "setHosts"
)

// Faults. N is a Service or a family, M how often.
const (
	// rejectService sets a Service that the kernel rejects, stallService one with which every
	// transaction fails without a rejection, breakService one whose rendering panics. M is the
	// number of the defect, unique in a scenario.
	rejectService verb = "rejectService"
	stallService  verb = "stallService"
	breakService  verb = "breakService"
	// hangService is stallService, but each transaction hangs for 15 s to 2 min first.
	hangService verb = "hangService"
	// hangAlongside lets a Service hang after all other disturbances end, and checks that the rest changes in time. M is
	// the number of the first of two defects; the process is killed once if N is not 0. It ends each generated scenario.
	hangAlongside verb = "hangAlongside"
	// repairServices ends the defects of all Services for good.
	repairServices verb = "repairServices"
	// failRequests makes transactions or questions fail, slowRequests makes them slow;
	// the variant says how. disturbReads changes another program's table during reads.
	failRequests verb = "failRequests"
	slowRequests verb = "slowRequests"
	disturbReads verb = "disturbReads"
	// panicActor and hangActor apply to the next messages of a Service, or of the node's
	// own actor when N is negative.
	panicActor verb = "panicActor"
	hangActor  verb = "hangActor"
	// resumeActors lets all hanging actors continue.
	resumeActors verb = "resumeActors"
)

// What other programs do to the kernel of family N.
const (
	deleteTable   verb = "deleteTable"
	deleteChain   verb = "deleteChain"
	deleteElement verb = "deleteElement"
	// addForeignChain and addForeignSet add what is none of the proxy's business and has
	// to stay.
	addForeignChain verb = "addForeignChain"
	addForeignSet   verb = "addForeignSet"
	// alterRules changes a chain or an element of the proxy,
	// addStray adds a chain or set to its table; all has to be undone.
	alterRules verb = "alterRules"
	addStray   verb = "addStray"
)

// What the simulation does.
const (
	// pause waits for as many milliseconds as the variant says.
	pause verb = "pause"
	// settle waits until all is settled, and checks everything.
	settle verb = "settle"
	// restart stops the proxy and starts another.
	restart verb = "restart"
)

// What happens to the process, and to what it hears.
const (
	// kill ends the process at a request to the kernel of family N, or at any time, and
	// starts another; the variant says how. handOver replaces it by one of other settings,
	// upgrade by one that finds rules as another release writes them.
	kill     verb = "kill"
	handOver verb = "handOver"
	upgrade  verb = "upgrade"
	// suspend freezes the process at all seams for a while: its timers fire late, and
	// everything comes together.
	suspend verb = "suspend"
	// delayEvents lets nothing of stream N through for a while; watchGap loses it, so that
	// a list follows; relist lists the stream again, and repeatEvents all of them.
	delayEvents  verb = "delayEvents"
	watchGap     verb = "watchGap"
	relist       verb = "relist"
	repeatEvents verb = "repeatEvents"
)

// More of what the API says, and more faults.
const (
	// setCIDRs changes the ranges of ClusterIPs.
	setCIDRs verb = "setCIDRs"
	// upheaval changes all facts about the node at one instant, and slices of Services.
	upheaval verb = "upheaval"
	// rejectMany lets the kernel reject one in N Services. M is the number of the first
	// defect; it takes as many as there are Services.
	rejectMany verb = "rejectMany"
	// rejectAll lets nothing land in family N for some minutes.
	rejectAll verb = "rejectAll"
	// rival lets another program delete, add and rewrite for some seconds, in family N.
	rival verb = "rival"
)

// nodeActor is the N of the node's own actor.
const nodeActor = -1

// services is the largest number of Services in a scenario; stories of tests have
// extraServices more at most.
const (
	services      = 30
	extraServices = 130
)

// rhythm is how a scenario mixes events and pauses.
type rhythm uint8

const (
	// steady scenarios pause after each event, bursty ones after some, and hasty ones
	// never between two checks.
	steady rhythm = iota
	bursty
	hasty
	rhythms
)

// weight is how often an event is chosen, relative to the others.
type weight struct {
	do    verb
	often int
}

// apiEvents happen in every scenario, faultEvents in most.
var (
	apiEvents = []weight{
		{setService, 14}, {removeService, 5}, {setSlice, 30}, {removeSlice, 5}, {moveSlice, 2},
		{setNode, 2}, {setHosts, 2}, {setCIDRs, 2},
	}
	faultEvents = []weight{
		{rejectService, 3}, {stallService, 2}, {breakService, 2}, {repairServices, 1},
		{failRequests, 6}, {slowRequests, 3}, {disturbReads, 1},
		{panicActor, 4}, {hangActor, 3}, {resumeActors, 2},
		{deleteTable, 1}, {deleteChain, 2}, {deleteElement, 3}, {addForeignChain, 2}, {addForeignSet, 1},
		{alterRules, 3}, {addStray, 1},
		{restart, 1}, {settle, 2},
		{kill, 3}, {handOver, 1}, {upgrade, 1}, {suspend, 1},
		{delayEvents, 2}, {watchGap, 2}, {relist, 1}, {repeatEvents, 1},
		{upheaval, 2}, {rejectMany, 1}, {rejectAll, 1}, {rival, 1},
	}
)

// generator makes scenarios.
type generator struct {
	random
	rhythm   rhythm
	services int
	// chances is the table that verbs are drawn from.
	chances []weight
	total   int
	defects int
	events  []event
}

// generate makes the scenario of a seed.
func generate(seed uint64) scenario {
	g := &generator{random: newRandom(seed, 79)}
	g.rhythm = rhythm(g.IntN(int(rhythms)))
	g.services = 8 + g.IntN(services-8+1)
	g.chances = apiEvents
	if g.percent(90) {
		g.chances = append(append([]weight{}, apiEvents...), faultEvents...)
	}
	for _, w := range g.chances {
		g.total += w.often
	}
	g.populate()
	for range 40 + g.IntN(80) {
		g.add(g.verb())
		g.rest()
	}
	d := newRandom(seed, 93) // separate, so that the other events of a seed stay the same
	g.events = append(g.events, event{hangAlongside, d.IntN(2), g.defects + 1 + d.IntN(6), d.Uint64N(1 << 16)})
	return scenario{seed: seed, events: g.events}
}

// populate makes a cluster that was there before the proxy.
func (g *generator) populate() {
	if g.percent(80) {
		g.emit(setNode, 0, 0)
	}
	for n := range g.services {
		if g.percent(70) {
			g.emit(setService, n, 0)
		}
		for m := range 1 + g.IntN(3) {
			g.emit(setSlice, n, m)
		}
	}
}

func (g *generator) verb() verb {
	at := g.IntN(g.total)
	for _, w := range g.chances {
		if at -= w.often; at < 0 {
			return w.do
		}
	}
	return settle // cannot be: the weights sum to the total
}

func (g *generator) emit(do verb, n, m int) {
	// Variants are small so that lists are easy to read.
	variant := g.Uint64N(1 << 16)
	if do == setService || do == setSlice {
		// Few choose an algorithm, since some of these have tables of thousands of elements, which every audit reads.
		// Fewer adapt: the outcomes of each packet to one of their tables are thousands.
		switch n := g.IntN(160); {
		case n == 0:
			variant |= balanced | adaptive
		case n < 8:
			variant |= balanced
		}
	}
	if do == setService && g.IntN(4) == 0 {
		variant |= refusing
	}
	g.events = append(g.events, event{do, n, m, variant})
}

// add chooses what an event is about.
func (g *generator) add(do verb) {
	switch do {
	case setService, removeService:
		g.emit(do, g.IntN(g.services), 0)
	case setSlice, removeSlice, moveSlice:
		g.emit(do, g.IntN(g.services), g.IntN(3))
	case rejectService, stallService, breakService:
		if g.defects++; do == stallService && g.defects%2 == 0 {
			do = hangService
		}
		g.emit(do, g.IntN(g.services), g.defects)
	case rejectMany:
		g.emit(do, []int{1, 3, 3, 10}[g.IntN(4)], g.defects+1)
		g.defects += services
	case delayEvents, watchGap, relist:
		g.emit(do, g.IntN(int(ofHosts)), 0)
	case panicActor, hangActor:
		g.emit(do, g.IntN(g.services+1)-1, 1+g.IntN(2))
	case failRequests, slowRequests, disturbReads:
		g.emit(do, g.IntN(2), 1+g.IntN(3))
	default: // those about a family, and those about nothing
		g.emit(do, g.IntN(2), 0)
	}
}

// rest pauses as the rhythm says.
func (g *generator) rest() {
	odds := [...]int{steady: 100, bursty: 15, hasty: 0}[g.rhythm]
	if g.percent(odds) {
		// From less than a write to more than an audit interval.
		g.events = append(g.events, event{pause, 0, 0, uint64(1) << g.IntN(17)})
	}
}

// settings are what a process is started with.
type settings struct {
	node    proxy.NodeSettings
	pace    aggregator.Pace
	options nftrender.Options
	writer  nftkernel.WriterConfig
	blame   blame
	// announced is set if the kernel announces what other programs change. Otherwise only
	// audits find it.
	announced bool
}

// blame is how exactly the kernel names what it rejects.
type blame uint8

const (
	// blameElement names the element, blameMessage the message that it is in, and
	// blameNothing leaves the bisection to the proxy.
	blameElement blame = iota
	blameMessage
	blameNothing
	blames
)

func settingsOf(seed uint64) settings {
	d := newRandom(seed, 77)
	s := settings{
		node:    proxy.NodeSettings{Name: thisNode, MasqueradeAll: d.percent(15)},
		pace:    paceOf(d),
		options: nftrender.Options{MasqueradeBit: uint(14 * d.IntN(2))},
	}
	_ = d.percent(30) // of a setting that is gone: what a seed draws stays the same
	s.blame, s.announced = blame(d.IntN(int(blames))), d.percent(70)
	s.divide(d)
	if d.percent(30) {
		s.node.NodePortRanges = nodePortRanges()
	}
	s.detectLocal(d)
	return s
}

func paceOf(d random) aggregator.Pace {
	return aggregator.Pace{
		MinInterval:   []time.Duration{0, 100 * time.Millisecond, 5 * time.Second}[d.IntN(3)],
		MaxWriteShare: []float64{0, 0.5}[d.IntN(2)],
	}
}

func (s *settings) divide(d random) {
	if d.percent(40) { // divide batches
		s.writer.TransactionBytes = 500 + d.IntN(8000)
		s.writer.TurnObjects = 500 + d.IntN(2000)
	}
}

func nodePortRanges() []netip.Prefix {
	ranges := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for _, family := range service.Families {
		ranges = append(ranges, netip.PrefixFrom(host(family, 0), host(family, 0).BitLen()-8))
	}
	return ranges
}

func (s *settings) detectLocal(d random) {
	switch d.IntN(5) {
	case 0: // nothing recognises pods
	case 1:
		s.node.DetectLocal = proxy.DetectNodeCIDR
	case 2:
		s.node.DetectLocal, s.node.Interface = proxy.DetectBridgeInterface, podInterface
	case 3:
		s.node.DetectLocal, s.node.Interface = proxy.DetectInterfaceNamePrefix, podInterface[:4]
	case 4:
		s.node.ClusterCIDRs[service.IPv4] = netip.MustParsePrefix("10.244.0.0/16")
		s.node.ClusterCIDRs[service.IPv6] = netip.MustParsePrefix("fd00:244::/32")
	}
}

// podInterface is the interface through which packets of local pods come.
const podInterface = "veth9"
