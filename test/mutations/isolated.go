// SPDX-License-Identifier: Apache-2.0

package main

// isolated are defects that make one Service, actor or fragment a problem of others, and those that
// appear during takeovers, repairs and stops.
var isolated = []mutation{
	{
		name:     "the first sync is complete too early",
		sentence: "The first sync is complete once every Service is programmed or quarantined.",
		edits: edit("aggregator/act.go", "left.Pending+left.Dirty > 0 || m.searching() {",
			"left.Pending < 0 {"),
		campaigns: []campaign{unitTest("proxy", "TestFirstSync_CompleteOnceAllServed")},
	},
	{
		name:      "a Service that does not land stops its family",
		sentence:  "A Service whose writes never land is quarantined alone.",
		edits:     edit("aggregator/isolate.go", "failuresMax = 4", "failuresMax = 1 << 30"),
		campaigns: []campaign{unlanded}, short: true,
	},
	{
		name:      "a failing host quarantines a Service",
		sentence:  "A Service is quarantined only if a write without it lands right after its last try.",
		edits:     edit("aggregator/isolate.go", "known = m.knownNotToLand(key)", "known = true"),
		campaigns: []campaign{unitTest("aggregator", "TestAggregator_FailingHostBlamesNoService")},
	},
	{
		name:      "what waits for a witness waits for ever",
		sentence:  "A change that is withdrawn while the host fails does not make the node unhealthy.",
		edits:     edit("aggregator/isolate.go", "m.tries.bisection.groups, m.tries.proving = nil, false", "_ = keys"),
		campaigns: []campaign{unitTest("observe/health", "TestMonitor_FailuresTimedSeparately")}, short: true,
	},
	{
		name:      "a write that did not land is tried whole once more",
		sentence:  "After a write that lasted too long, its Services are tried in halves.",
		edits:     edit("aggregator/bisect.go", "half := len(keys) / 2\n\tb.groups = slices.Insert", "half := 0\n\tb.groups = slices.Insert"),
		campaigns: []campaign{unitTest("aggregator", "TestAggregator_TwoServicesHangInSuccession")}, short: true,
	},
	{
		name:      "bisection starves under writes",
		sentence:  "The bisection of rejected Services makes progress while changes arrive faster than they are written.",
		edits:     edit("aggregator/act.go", "if !m.tries.turn || m.tries.proving || m.pacer.Failures() > 0 {", "if m.tries.turn || !m.tries.turn {"),
		campaigns: []campaign{unitTest("aggregator", "TestAggregator_SearchNotStarvedByChanges")},
	},
	{
		name:     "the oldest pending change only ages",
		sentence: "The age of the oldest pending change does not grow while every change is programmed in time.",
		edits: edit("aggregator/machine.go", "\tm.pending.arrived = time.Time{} // what arrives from now on wakes the aggregator again\n",
			"\tif len(fragments) == 0 {\n\t\tm.pending.arrived = time.Time{}\n\t}\n"),
		campaigns: []campaign{unitTest("aggregator", "TestStatus_FragmentArrivesDuringFold")},
	},
	{
		name:      "a stop waits for a hanging actor",
		sentence:  "A stop and a hand-over wait at most one second for an actor that hangs.",
		edits:     edit("supervisor/stuck.go", "select {\n\tcase <-s.running.dismiss():\n\t\treturn\n\tcase <-limit.C:\n\t}", "<-s.running.dismiss()"),
		campaigns: []campaign{unitTests("supervisor")}, short: true,
	},
	{
		name:      "abandoned goroutines have no bound",
		sentence:  "A ninth goroutine that was abandoned and still runs ends the process.",
		edits:     edit("supervisor/stuck.go", "if len(s.abandoned) <= s.limits.abandonedMax {", "if len(s.abandoned) >= 0 {"),
		campaigns: []campaign{unitTests("supervisor")},
	},
	{
		name:      "pauses of a hanging actor do not double",
		sentence:  "The pauses of an actor that hangs double.",
		edits:     edit("supervisor/restart.go", "return l.parkRetry << max(0, hung-2)", "return l.parkRetry"),
		campaigns: []campaign{unitTest("supervisor", "TestSupervisor_ChildHangs.*"), unitTests("supervisor")},
	},
	{
		name:     "a held Service keeps what it gave up",
		sentence: "An address that a quarantined Service gave up goes to the Service that the API gave it to.",
		edits: edit("dataplane/ledger/frontend.go", "switch owner, known := l.frontends.owner(f); {\n",
			"switch owner, known := l.frontends.owner(f); {\n\tcase other.keeps():\n\t\treturn false\n"),
		campaigns: []campaign{unitTests("dataplane/ledger")}, short: true,
	},
	{
		name:      "what held Services keep beats what others want",
		sentence:  "Of objects that Services share, the content that a newest fragment wants goes before what held Services keep.",
		edits:     edit("dataplane/ledger/claim.go", "if !c.by.keeps() {", "if c.by != nil {"),
		campaigns: []campaign{unitTests("dataplane/ledger")}, short: true,
	},
	{
		name:      "what is retained returns to its former state",
		sentence:  "What a rejected Service leads to stays as others have repaired it, also when they go.",
		edits:     edit("dataplane/ledger/retain.go", "if e.wanted = e.known; e.known == nil {", "if e.wanted = e.known; r.former != nil {"),
		campaigns: []campaign{unitTests("dataplane/ledger")}, short: true,
	},
	{
		name:      "what is retained leads nowhere",
		sentence:  "What a rejected Service leads to stays with all that it leads to itself.",
		edits:     edit("dataplane/ledger/retain.go", "case r.stays && !stayed:", "case r.stays && !stayed && r.references < 0:"),
		campaigns: []campaign{unitTests("dataplane/ledger")}, short: true,
	},
	{
		name:      "what another program deletes is forgotten",
		sentence:  "What a rejected Service leads to is restored if another program deletes it while the Service is tried again.",
		edits:     edit("dataplane/ledger/retain.go", "e.wanted = r.former", "e.wanted = nil"),
		campaigns: []campaign{unitTests("dataplane/ledger")}, short: true,
	},
	{
		name:      "one chain for all ways to detect local pods",
		sentence:  "While the detection of local pods changes, each Service has the rules of the facts that it was rendered with.",
		edits:     edit("dataplane/nftables/render/class.go", "if !c.detect.Configured() {", "if c.kind == classExternalLocal {"),
		campaigns: []campaign{unitTests("dataplane/nftables/render")}, short: true,
	},
	{
		name:      "stopping cancels the write",
		sentence:  "A stopping proxy completes its batch.",
		edits:     edit("aggregator/aggregator.go", "beyond := context.WithoutCancel(ctx)", "beyond := ctx"),
		campaigns: []campaign{unitTest("aggregator", "TestAggregator_StopDuringWrite")}, short: true,
	},
	{
		name:     "one sweep after a repair",
		sentence: "After a repair, the cleaner of flows sweeps four more times within a second.",
		edits: edit("dataplane/conntrack/cleaner/doubts.go", "{ *d = doubts{at: now.Add(doubtPauses[0])} }",
			"{ *d = doubts{} }"),
		campaigns: []campaign{unitTests("dataplane/conntrack/cleaner")},
	},
	{
		name:     "a slice before its Service loses its trigger",
		sentence: "The programming latency has a sample also if a slice comes before its Service or right after it.",
		edits: edit("actors/machine.go", "m.cause = m.cause.or(Cause{Trigger: slice.Trigger})",
			"m.cause = m.cause.or(Cause{})"),
		campaigns: []campaign{unitTests("actors"), unitTest("proxy", "TestProxy_EachTriggerMeasured")},
	},
	{
		name:      "readiness knows rejections only",
		sentence:  "A node is not ready if actors of Services panic or hang that the previous process followed.",
		edits:     edit("observe/book/look.go", "[]Kind{Stuck, Parked, TooLarge, Quarantined}", "[]Kind{Quarantined}"),
		campaigns: []campaign{unitTest("proxy", "TestProxy_ReleaseFailsForSomeServices")}, short: true,
	},
	{
		name:      "a tenant holds a rollout",
		sentence:  "A Service does not count for readiness if its objects are not those that the previous process followed.",
		edits:     edit("internal/daemon/ready.go", " && digest == digestOf(known(key))", " && digest != 0"),
		campaigns: []campaign{unitTest("internal/daemon", "TestReadiness_ChangedServiceNotCounted")}, short: true,
	},
	{
		name:      "lost rules are applied",
		sentence:  "A Service is pending from the moment its rules are known to be missing.",
		edits:     edit("aggregator/applied.go", "m.pending.waits.begin(key, since)", "_ = since"),
		campaigns: []campaign{unitTest("aggregator", "TestScripts"), unitTest("internal/daemon", "TestStatus_LostRulesNotApplied")}, short: true,
	},
	{
		name:      "what all need is nobody's",
		sentence:  "If a rule is missing that all Services need, all are pending.",
		edits:     edit("aggregator/applied.go", "if undone.Everyone {", "if undone.Everyone && undone.Missing < 0 {"),
		campaigns: []campaign{unitTest("aggregator", "TestScripts")}, short: true,
	},
	{
		name:      "a node without rules is healthy",
		sentence:  "A node that knows that a family has no rules answers /healthz with 503 immediately.",
		edits:     edit("observe/health/state.go", "i.Healthy = !i.Bare && ", "i.Healthy = "),
		campaigns: []campaign{unitTest("observe/health", "TestHandler_BareFamilyUnhealthyAtOnce")}, short: true,
	},
	{
		name:      "what is left in another table serves",
		sentence:  "A family without hooks, without its first chain or without chains of Services has no rules.",
		edits:     edit("dataplane/ledger/observe.go", "		if wanted && !s.found[stage] {", "		if wanted && !s.found[stage] && stage == int(dataplane.StageFrontend) {"),
		campaigns: []campaign{unitTest("dataplane/nftables/kernel", "TestKernelDrift_NoServiceWorks"), unitTest("dataplane/iptables/kernel", "TestKernelDrift_NoServiceWorks")}, short: true,
	},
	{
		name:      "a chain of another program makes a table full",
		sentence:  "A table that has lost all rules of ours is empty, whatever others put into it.",
		edits:     edit("dataplane/ledger/observe.go", "drift.Bare && !standing.overwritten", "drift.Bare && !standing.overwritten && drift.Unwanted == 0"),
		campaigns: []campaign{unitTest("dataplane/iptables/kernel", "TestKernelDrift_NoServiceWorks")},
	},
	{
		name:      "the first write waits for a Service that hangs",
		sentence:  "A process that starts beside a Service that hangs serves 12,000 others within 20 s.",
		edits:     edit("aggregator/limit.go", "firstEach = 500 * time.Microsecond", "firstEach = 10 * time.Millisecond"),
		campaigns: []campaign{unitTest("aggregator", "TestAggregator_HangDelaysFirstWriteBriefly")}, short: true,
	},
	{
		name:      "an empty table waits",
		sentence:  "The pause between repairs does not apply to an empty table.",
		edits:     edit("aggregator/repair.go", "began.Again == 0 || drift.Emptied", "began.Again == 0"),
		campaigns: []campaign{unitTest("aggregator", "TestScripts"), unitTest("internal/daemon", "TestRepair_EmptyTableWithoutPause")}, short: true,
	},
	{
		name:      "an audit that fails forgets why it was requested",
		sentence:  "What another program removes is looked for until the kernel could be read.",
		edits:     edit("aggregator/repair.go", "return !r.heard.at.IsZero()", "return false"),
		campaigns: []campaign{unitTest("aggregator", "TestScripts")}, short: true,
	},
	{
		name:      "writes keep a requested audit waiting",
		sentence:  "A requested audit waits for other writes no longer than a fragment may wait.",
		edits:     edit("aggregator/pacer.go", "if p.auditAgain {\n\t\tpatience", "if p.auditAgain && false {\n\t\tpatience"),
		campaigns: []campaign{unitTest("aggregator", "TestPacer_Scripts")}, short: true,
	},
	{
		name:      "the other family interrupts a reading",
		sentence:  "The table can be read while the other family's rules change all the time.",
		edits:     edit("dataplane/nftables/kernel/read.go", "*r.flagged, err = true, nil", "*r.flagged = true"),
		campaigns: []campaign{unitTest("dataplane/nftables/kernel", "TestRead_OtherFamilyDoesNotInterrupt")}, short: true,
	},
}

// unlanded is the story of a Service whose writes fail without a rejection.
var unlanded = campaign{sim, "stories of isolation", "./test/sim", "^TestIsolation_ServiceDoesNotLand$"}
