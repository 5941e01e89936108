// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"github.com/sluice-proxy/sluice/test/defects"
)

// mutation reintroduces a fixed bug.
type mutation struct {
	name string
	// sentence is what the fix promised.
	sentence string
	edits    []defects.Edit
	// campaigns are those that may find it, in the order in which they are run.
	campaigns []campaign
	// short is set for one that is found within seconds.
	short bool
}

// unitTests are those of a package, some of them on the real kernel.
func unitTests(folder string) campaign { return unitTest(folder, "Test.*") }

// unitTest is some tests of a package, chosen by a regular expression of their names.
func unitTest(folder, tests string) campaign {
	return campaign{unit, "tests of " + folder, "./" + folder, "^(" + tests + ")$"}
}

// isolation are stories of Services next to rejected ones.
var isolation = campaign{sim, "stories of isolation", "./test/sim",
	"^(TestIsolation_LongSearch|TestIsolation_RestartBesideRejected|TestIsolation_NodeRejectsEverything)$"}

// hangs has Services whose writes hang.
var hangs = unitTest("aggregator", "TestAggregator_HangDoesNotDelayChanges")

// edit is a mutation in one place.
func edit(file, old, new string) []defects.Edit {
	return []defects.Edit{{File: file, Old: old, New: new}}
}

var mutations = slices.Concat(correctness, isolated, hostile, tenants, graceful, whole, commands)

// correctness are defects in the way from the API to the kernel.
var correctness = []mutation{
	{
		name:     "restart forgets what rejected Services had",
		sentence: "A rejected Service keeps the rules that a former process has left.",
		edits: edit("aggregator/write.go", "m.settled(now, m.ledger.Adopt(m.gate.absent(), m.origin), &result{})",
			"m.settled(now, nil, &result{})"),
		campaigns: inMemory,
	},
	{
		name:     "restart forgets whose actor is stuck",
		sentence: "So does one whose actor is stuck at the start.",
		edits:    edit("aggregator/write.go", "m.ledger.Adopt(m.gate.absent(), m.origin)", "m.ledger.Adopt(nil, m.origin)"), campaigns: []campaign{unitTests("aggregator")},
	},
	{
		name:      "restart writes what is there",
		sentence:  "Objects that are already correct are applied without a write.",
		edits:     edit("dataplane/ledger/adopt.go", "settled := l.settle(contributions)", "settled := contributions[:0]"),
		campaigns: []campaign{isolation}, short: true,
	},
	{
		name:      "bisection removes what it holds",
		sentence:  "Bisection removes nothing.",
		edits:     edit("dataplane/ledger/ledger.go", "l.fold(a, a.applied, held)", "l.fold(a, nil, held)"),
		campaigns: inMemory, short: true,
	},
	{
		name:     "quarantine of whole groups",
		sentence: "Bisection quarantines only Services that were rejected alone.",
		edits: edit("aggregator/isolate.go", "if culprit, found := m.tries.bisection.rejected(rest, receipt.Suspects); found {",
			"for _, key := range rest {\n\t\tm.quarantineKey(now, key, receipt)\n\t}\n\tif culprit, found := m.tries.bisection.rejected(rest, receipt.Suspects); found {"),
		campaigns: inMemory,
	},
	{
		name:     "others wait for a bisection",
		sentence: "Bisection lets the changes of others through in between.",
		edits: edit("aggregator/act.go", "case action == Write && !m.triesFirst(now):",
			"case action == Write && m.tries.bisection.idle():"),
		campaigns: []campaign{isolation}, short: true,
	},
	{
		name:      "no witness",
		sentence:  "A node that begins to reject every write is unhealthy, and no Service is quarantined for it.",
		edits:     edit("aggregator/isolate.go", "known := m.tries.bisection.proof ||", "known := true || m.tries.bisection.proof ||"),
		campaigns: []campaign{isolation}, short: true,
	},
	{
		name:      "shared chains go with their last claimant",
		sentence:  "After a restart, what a rejected Service's rules lead to stays, also when the Services that share it go.",
		edits:     edit("dataplane/ledger/inventory.go", "o = e.shared(id, a)", "o = nil"),
		campaigns: inMemory,
	},
	{
		name:     "elements outlive their set",
		sentence: "Elements of a set that has gone are no longer restored.",
		edits: edit("dataplane/ledger/inventory.go",
			"return in != nil && in.claims.len() == 1 && in.claims.sole.by != nil && in.claims.sole.by.key != service.Node", "return in == nil && e == nil"),
		campaigns: inMemory,
	},
	{
		name:      "a denial outlives the owner",
		sentence:  "A Service is served at an address once the Service that had it goes.",
		edits:     edit("source/admission.go", "\ttold(before)\n\ttold(now)\n", "\ttold(before)\n"),
		campaigns: []campaign{unitTests("source")}, short: true,
	},
	{
		name:      "silent health",
		sentence:  "Health knows since when anything wanted is not applied, whatever holds it back.",
		edits:     edit("aggregator/isolate.go", "m.pending.seek(key, now)", "m.pending.end(key)"),
		campaigns: []campaign{isolation}, short: true,
	},
	{
		name:      "results wait for other Services",
		sentence:  "Results no longer wait for other Services.",
		edits:     edit("dataplane/ledger/write.go", "whole = l.applied(contributions)", "whole = nil"),
		campaigns: []campaign{unitTests("dataplane/ledger")},
	},
	{
		name:      "two Services mix at one frontend",
		sentence:  "Two Services that want one frontend no longer mix.",
		edits:     edit("dataplane/ledger/frontend.go", "l.drop(a, object)", "_ = object"),
		campaigns: []campaign{unitTests("dataplane/ledger")}, short: true,
	},
	{
		name: "announcements carry node facts",
		sentence: "Changes of settings, Node, host addresses and ServiceCIDRs at the same time no longer leave Services " +
			"on old facts.",
		edits: []defects.Edit{
			{File: "actors/message.go", Old: "type FactsChanged struct{}", New: "type FactsChanged struct{ Facts *service.NodeFacts }"},
			{File: "actors/directory.go", Old: "func (d *Directory) PostFacts() {\n",
				New: "func (d *Directory) PostFacts() {\n\tfacts := d.config.State.Facts()\n"},
			{File: "actors/directory.go", Old: "FactsChanged{})", New: "FactsChanged{Facts: facts})"},
			{File: "actors/actor.go", Old: "if _, changed := e.Message.(FactsChanged); changed {",
				New: "if changed, ok := e.Message.(FactsChanged); ok {"},
			{File: "actors/actor.go", Old: "a.machine.SetFacts(a.directory.config.State.Facts())", New: "a.machine.SetFacts(changed.Facts)"},
		},
		campaigns: []campaign{unitTest("proxy", "TestFacts_EveryActorEndsOnCurrent")},
	},
	{
		name:      "audits act on torn listings",
		sentence:  "Audits in nftables mode never act on a torn listing of elements.",
		edits:     edit("dataplane/nftables/kernel/read.go", "err == nil && touched {", "err != nil && touched {"),
		campaigns: []campaign{unitTest("dataplane/nftables/kernel", "TestRead_IsOneMoment")},
	},
	{
		name: "frontends lead to emptied chains",
		sentence: "When the removal of a Service's chains was interrupted and taken back, its connections could fail " +
			"for one transaction.",
		edits:     edit("dataplane/nftables/kernel/divide.go", "c.Before != nil && isEmptied(c.Before):", "c.Before != nil && isEmptied(c.Before) && noPart == 0:"),
		campaigns: []campaign{unitTest("dataplane/nftables/kernel", "TestPlan_EmptiedChainFilledFirst")},
	},
	{
		name:      "a set is printed as what its name promises",
		sentence:  "The text of a transaction describes its messages: a set of another definition is a comment.",
		edits:     edit("dataplane/nftables/render/text.go", "err == nil && !strings.HasSuffix(", "err != nil && !strings.HasSuffix("),
		campaigns: []campaign{unitTest("dataplane/nftables/render", "TestStatements_OtherMessages")}, short: true,
	},
	{
		name:      "shared sets come after those of Services",
		sentence:  "The kernel finds shared sets first, because a transaction adds them first.",
		edits:     edit("dataplane/nftables/kernel/plan.go", "return append(list, stepNewSharedSet)", "return append(list, stepNewSet)"),
		campaigns: []campaign{unitTest("dataplane/nftables/kernel", "TestPlan_TransactionOrder")}, short: true,
	},
	{
		name:      "a table goes in one step",
		sentence:  "When nftables mode is left, the rules go before the elements that they look up.",
		edits:     edit("dataplane/nftables/kernel/cleanup.go", "e.begin(unix.NFT_MSG_DELRULE, 0)", "e.deleteTable()"),
		campaigns: []campaign{unitTest("dataplane/nftables/kernel", "TestRetireTable_TwoSteps")}, short: true,
	},
	{
		name:     "base chains go with their rules",
		sentence: "The transaction that changes the nat chains empties base chains that go, and a later one deletes them (ADR 6).",
		edits: edit("dataplane/nftables/kernel/plan.go", "isBase(changes[i].Before)",
			"false"),
		campaigns: inMemory,
	},
	{
		name:      "the listener's filter is too large",
		sentence:  "Nftables mode on Linux before 6.7: changes by other programs are noticed again.",
		edits:     edit("internal/netlink/tables.go", "const messagesMax = 70", "const messagesMax = 170"),
		campaigns: []campaign{unitTest("internal/netlink", "TestTableListener_WholeFilterFits")},
	},
	{
		name:      "a renamed pod refuses for a moment",
		sentence:  "A pod of the sandbox that stays in another Service goes on to answer.",
		edits:     edit("internal/daemon/lab/lab.go", "stays := wanted[socket]; stays {", "stays := wanted[socket]; stays && name == *s.name.Load() {"),
		campaigns: []campaign{unitTest("internal/daemon/lab", "TestLab_RenameKeepsConnections")}, short: true,
	},
	{
		name:      "NAT ends with a flush",
		sentence:  "Open connections survive a flush of all rules.",
		edits:     edit("dataplane/nftables/hooks/hooks.go", `Base: &rules.Base{Kind: "nat",`, `Base: &rules.Base{Kind: "filter",`),
		campaigns: []campaign{unitTests("dataplane/nftables/hooks")},
	},
	{
		name:      "tracking ends with a flush",
		sentence:  "Open connections survive a flush of all rules.",
		edits:     edit("dataplane/nftables/hooks/hooks.go", "Rules: []rules.Rule{state}", "Rules: []rules.Rule{state}[:0]"),
		campaigns: []campaign{unitTests("dataplane/nftables/hooks")},
	},
	{
		name:      "a flush includes temporary tables",
		sentence:  "A table of package owned belongs to its process.",
		edits:     edit("dataplane/nftables/owned/owned.go", "tx.Uint32(unix.NFTA_TABLE_FLAGS, tableOwned)", "tx.Uint32(unix.NFTA_TABLE_FLAGS, tableOwned&1)"),
		campaigns: []campaign{unitTests("dataplane/nftables/hooks")},
	},
	{
		name:      "nobody keeps the hooks",
		sentence:  "Open connections survive a flush of all rules.",
		edits:     edit("internal/daemon/hooks.go", "if s.backend.Mode.Forwards {", `if s.backend.Mode.Forwards || s.backend.Mode.Name != "" {`),
		campaigns: []campaign{unitTest("internal/daemon", "TestHooks_FlushKeepsConnections")},
	},
}
