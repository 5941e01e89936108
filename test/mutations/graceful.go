// SPDX-License-Identifier: Apache-2.0

package main

// graceful are defects of endpoints that keep their connections in IPVS mode.
var graceful = []mutation{
	{
		name:      "UDP flows outlive their endpoint",
		sentence:  "A UDP flow continues while its endpoint serves.",
		edits:     edit("dataplane/ipvs/kernel/graceful.go", "	case f.Protocol == service.TCP:\n", "	case f.Protocol != service.SCTP:\n"),
		campaigns: []campaign{unitTest("dataplane/ipvs/kernel", "TestGraceful_WhoKeepsConnections")}, short: true,
	},
	{
		name:      "an endpoint that is back is added",
		sentence:  "An endpoint that comes back gets its weight again, in one request.",
		edits:     edit("dataplane/ipvs/kernel/graceful.go", "back && r.Verb == wire.NewReal {", "back && r.Verb == wire.SetReal {"),
		campaigns: []campaign{unitTest("dataplane/ipvs/kernel", "TestGraceful_LeavingChangesOnlyWeight")}, short: true,
	},
	{
		name:      "a weight that others gave is hidden",
		sentence:  "What is read leaves out a listed endpoint only while it has weight 0.",
		edits:     edit("dataplane/ipvs/kernel/graceful.go", "if listed = listed && r.Weight == 0; listed {", "if listed {"),
		campaigns: []campaign{unitTest("dataplane/ipvs/kernel", "TestGraceful_OthersInterfere")}, short: true,
	},
	{
		name:      "an endpoint that is back is deleted",
		sentence:  "The alarm deletes only what has weight 0.",
		edits:     edit("dataplane/ipvs/kernel/graceful.go", "listed && d.Weight == 0 {", "listed {"),
		campaigns: []campaign{unitTest("dataplane/ipvs/kernel", "TestGraceful_OthersInterfere")}, short: true,
	},
	{
		name:      "a change of the deadline alone is no change",
		sentence:  "A new drain deadline of a Service applies to endpoints that have left already.",
		edits:     edit("dataplane/ipvs/render/server.go", "string(s.Grace.append(appendReals(b, s.Reals)))", "string(appendReals(b, s.Reals))"),
		campaigns: []campaign{unitTest("dataplane/ipvs/kernel", "TestGraceful_Deadline")}, short: true,
	},
	{
		name:      "clients of a leaving endpoint are refused",
		sentence:  "While an endpoint leaves, a hash selects another one.",
		edits:     edit("dataplane/ipvs/render/ports.go", `{Scheduler: "mh", Ports: true, Fallback: true}`, `{Scheduler: "mh", Ports: true}`),
		campaigns: []campaign{unitTest("dataplane/ipvs/render", "TestRender_Golden")}, short: true,
	},
	{
		name:      "leaving endpoints are not limited",
		sentence:  "At most 1,000 endpoints of a Service keep their connections.",
		edits:     edit("dataplane/ipvs/kernel/settle.go", "	if excess <= 0 {\n", "	if excess <= leavingMax {\n"),
		campaigns: []campaign{unitTest("dataplane/ipvs/kernel", "TestGraceful_OldestMakeRoom")}, short: true,
	},
	{
		name:      "a look asks about everything",
		sentence:  "A write waits for a bounded number of questions about leaving endpoints.",
		edits:     edit("dataplane/ipvs/kernel/graceful.go", "g.due(now, looksMax)", "g.due(now, len(g.left))"),
		campaigns: []campaign{unitTest("dataplane/ipvs/kernel", "TestGraceful_LookEndsSoon")}, short: true,
	},
	{
		name:      "a turn counts all that leave",
		sentence:  "A write costs what it changes in the list of leaving endpoints.",
		edits:     edit("dataplane/ipvs/kernel/settle.go", "	for key := range services {\n", "	for key := range g.owned {\n"),
		campaigns: []campaign{unitTest("dataplane/ipvs/kernel", "TestGraceful_TurnCostsWhatItChanges")}, short: true,
	},
	{
		name:      "a look waits for the next question",
		sentence:  "A deadline that is earlier than the next question about connections is met.",
		edits:     edit("dataplane/ipvs/kernel/settle.go", "!l.failed && t.Before(at)", "l.failed && t.Before(at)"),
		campaigns: []campaign{unitTest("dataplane/ipvs/kernel", "TestGraceful_Deadline")}, short: true,
	},
}
