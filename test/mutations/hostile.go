package main

import "github.com/sluice-proxy/sluice/test/defects"

// hostile are defects that let a tenant, a client or a local user take what belongs to others.
var hostile = []mutation{
	{
		name:      "no budget for objects",
		sentence:  "One Service may ask for actors.objectsMax objects per domain, counted before anything is rendered.",
		edits:     edit("actors/size.go", "if objects > most {", "if objects > most && most == 0 {"),
		campaigns: []campaign{unitTests("actors")}, short: true,
	},
	{
		name:      "a large Service keeps what it gives up",
		sentence:  "A Service above its budget loses the addresses that it gives up.",
		edits:     edit("actors/machine.go", "if m.excess {", "if m.excess && m.view.HealthCheckNodePort > 1<<16-1 {"),
		campaigns: []campaign{unitTest("proxy", "TestAddressesThatATooLargeServiceGivesUp")},
	},
	{
		name:      "a restart forgets large Services",
		sentence:  "A Service above its budget keeps its previous rules, also after a restart.",
		edits:     edit("aggregator/gate.go", "{g.expect, g.skipped, g.large}", "{g.expect, g.skipped}"),
		campaigns: []campaign{unitTest("proxy", "TestAServiceThatIsTooLargeAffectsNoOther")},
	},
	{
		name:     "age goes before kind",
		sentence: "A ClusterIP or node port goes before a load balancer IP, and that before an external IP.",
		edits: edit("source/admission.go", "cmp.Or(cmp.Compare(b.kind, other.kind), b.created.Compare(other.created), ",
			"cmp.Or(b.created.Compare(other.created), cmp.Compare(b.kind, other.kind), "),
		campaigns: []campaign{unitTests("source")}, short: true,
	},
	{
		name:      "tries last as long as any write",
		sentence:  "Changes wait at most 10 s for a Service whose writes hang.",
		edits:     edit("aggregator/limit.go", "return shared, m.aloneLimit(shared)", "return jobTimeout, jobTimeout"),
		campaigns: []campaign{hangs}, short: true,
	},
	{
		name:      "a write lasts although others wait",
		sentence:  "A write that others wait for is cut after four usual writes, or 4 s.",
		edits:     edit("aggregator/limit.go", "f.cut, m.out.cut = true, true", "f.cut = true"),
		campaigns: []campaign{hangs}, short: true,
	},
	{
		name:      "isolation begins by number only",
		sentence:  "The search for a Service that does not land begins once writes failed for as long as one may last.",
		edits:     edit("aggregator/write.go", "if m.failing.spent >= r.shared {", "if m.failing.spent < 0 {"),
		campaigns: []campaign{unitTest("aggregator", "TestAServiceThatFailsSlowlyKillsNoProcess"), hangs}, short: true,
	},
	{
		name:     "a Node that comes back in steps opens a family",
		sentence: "Node ports of a family that had an address never answer on all addresses.",
		edits: edit("proxy/facts.go", "slices.Concat(merged.Addresses, slices.DeleteFunc(slices.Clone(f.node.Addresses), other))",
			"merged.Addresses[:len(merged.Addresses):len(merged.Addresses)]"),
		campaigns: []campaign{unitTest("proxy", "TestANodeThatComesBackInStepsKeepsEachFamily")}, short: true,
	},
	{
		name:      "limits do not grow",
		sentence:  "On a slow node, the limits of writes grow until they land.",
		edits:     edit("aggregator/limit.go", "min(max(0, m.tries.unlanded-patienceMax), growthMax)", "0"),
		campaigns: []campaign{unitTest("aggregator", "TestBisectionOnASlowNode")}, short: true,
	},
	{
		name:      "the first write is cut short",
		sentence:  "The first write of a large node may last as long as its size needs.",
		edits:     edit("aggregator/limit.go", "if m.health.lastWrite.IsZero() {", "if false {"),
		campaigns: []campaign{unitTest("aggregator", "TestALongFirstWriteIsNotCutShort")}, short: true,
	},
	{
		name:      "what is tried ages",
		sentence:  "A Service that the proxy tries does not make /livez fail.",
		edits:     edit("aggregator/status.go", "laterOf(sought, p.progress)", "sought"),
		campaigns: []campaign{unitTest("aggregator", "TestAServiceThatFailsSlowlyKillsNoProcess")}, short: true,
	},
	{
		name:      "a slow Service makes all limits longer",
		sentence:  "One Service whose writes are slow does not change what is usual.",
		edits:     edit("aggregator/limit.go", "if took > max(tryMin, m.tries.usual) && !m.isUsual(r.batch) {", "if false {"),
		campaigns: []campaign{hangs}, short: true,
	},
	{
		name:      "liveness kills a long first write",
		sentence:  "/livez does not fail while a write is within its limit.",
		edits:     edit("observe/health/state.go", "since = later(since, dataplane.Earliest(in.now, excused))", "_ = excused"),
		campaigns: []campaign{unitTest("observe/health", "TestLivezExcusesAWriteWithinItsLimit")}, short: true,
	},
	{
		name:      "the next process forgets what did not land",
		sentence:  "What did not land is tried last, and alone, by the next process.",
		edits:     edit("aggregator/quarantine.go", "if !m.start.adopted || !m.start.unlanded[key] {", "if true {"),
		campaigns: []campaign{unitTest("aggregator", "TestWhatDidNotLandIsTriedLastByTheNextProcess")}, short: true,
	},
	{
		name:      "the sweep compares all filters",
		sentence:  "A Service with tens of thousands of destinations does not stall the cleaner of flows.",
		edits:     edit("dataplane/conntrack/sweep.go", "return len(sources)+len(all) <= filtersMax", "return true"),
		campaigns: []campaign{unitTest("dataplane/conntrack", "TestTheWorkForALargeServiceIsLinear")},
	},
	{
		name:      "answers of strangers keep their flows",
		sentence:  "A client that met no rule reaches its Service after a repair, although somebody answered it.",
		edits:     edit("dataplane/conntrack/sweep.go", "if f.translated() {\n\t\treturn by, false, false, nil", "if f != nil {\n\t\treturn by, false, false, nil"),
		campaigns: []campaign{unitTest("dataplane/conntrack", "TestKernelConnectionsWithoutRules")},
	},
	{
		name:     "events share the limit of watches",
		sentence: "Events have a rate limit and a bounded queue apart from watches.",
		edits: edit("observe/events/recorder.go", "client.RateLimiter, client.QPS, client.Burst = nil, 5*rate, burst",
			"client.QPS, client.Burst = 5*rate, burst"),
		campaigns: []campaign{unitTest("observe/events", "TestEventsDoNotDelayWatches")},
	},
	{
		name:      "external IPs inside ServiceCIDRs are served",
		sentence:  "External IPs inside ServiceCIDRs are ignored, so a ClusterIP stays with its Service.",
		edits:     edit("service/nodefacts.go", "if f.ExternalIPsInServiceCIDR || !slices", "if len(all) >= 0 || !slices"),
		campaigns: []campaign{unitTests("service")}, short: true,
	},
	{
		name:      "special addresses are served",
		sentence:  "Loopback, link-local, multicast and metadata addresses are dropped as endpoints and as addresses of Services.",
		edits:     edit("source/reduce/policy.go", "return err == nil", "return true"),
		campaigns: []campaign{unitTests("source/reduce")},
	},
	{
		name:     "idle clients keep their places",
		sentence: "A new connection to the health port takes the place of the oldest idle one.",
		edits: edit("observe/web/limit.go", "victim := p.oldest(c.from)\n\t\tif victim == nil {",
			"victim := p.oldest(c.from)\n\t\tif victim == nil || victim != nil {"),
		campaigns: []campaign{unitTest("observe/web", "TestKernelIdleClientsDoNotStopProbes")},
	},
	{
		name:     "a stranger ends the hand-over",
		sentence: "A local user who connects first does not keep the successor from the listening sockets.",
		edits: edit("internal/daemon/peer/handoff.go", "_ = conn.Close() // no socket was sent",
			"_ = conn.Close()\n\t\t_ = o.listener.SetDeadline(time.Now())"),
		campaigns: []campaign{unitTest("internal/daemon/peer", "TestKernelAStrangerThatConnectsFirst")},
	},
	{
		name:     "a filter without room is the host's failure",
		sentence: "Userspace mode: a Service with many source ranges does not stop other Services.",
		edits: []defects.Edit{
			{File: "dataplane/userspace/filter.go", Old: "\tif errors.Is(err, unix.ENOMEM) {\n\t\treturn nil\n\t}\n", New: ""},
		},
		campaigns: []campaign{unitTest("dataplane/userspace", "TestKernelFilterWithoutRoom")},
	},
	{
		name:      "a new UDP client costs a walk",
		sentence:  "At the limit of UDP sessions, a new client costs as much as below it.",
		edits:     edit("dataplane/relay/pool.go", "e != nil && n < candidatesMax;", "e != nil;"),
		campaigns: []campaign{unitTest("dataplane/relay", "TestPool.*")},
	},
	{
		name:     "listeners answer each other",
		sentence: "Userspace mode: a datagram from the address of a listener of this process is dropped.",
		edits: edit("dataplane/relay/udp.go", "return client.Port() == 0 || s.places.has(",
			"return client.Port() == 0 && s.places.has("),
		campaigns: []campaign{unitTest("dataplane/userspace", "TestKernelDatagramsFromListenersAreDropped")}, short: true,
	},
	{
		name:      "other programs' ports are rejected",
		sentence:  "Nftables mode: connections are refused after all programs that translate at -100.",
		edits:     edit("dataplane/nftables/render/renderer.go", "priorityReject = priorityDNAT + 1", "priorityReject = priorityDNAT"),
		campaigns: []campaign{unitTest("dataplane/nftables/kernel", "TestOtherTranslatorsAreNotRejected")},
	},
}
