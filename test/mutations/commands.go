package main

// commands are defects that let a command, or the page, say what is not so.
var commands = []mutation{
	{
		name:      "gone beside the rules of others",
		sentence:  "An endpoint is gone only once the rules of other proxies and modes are removed.",
		edits:     edit("internal/daemon/gone/watch.go", "a := &Answer{of: q.at, Err: others}", "a := &Answer{of: q.at}\n\t\t\t_ = others"),
		campaigns: []campaign{unitTest("internal/daemon/gone", "TestOthersMaySendUntilTheyAreRemoved")}, short: true,
	},
	{
		name:      "the first question waits",
		sentence:  "A node that answers is not called unreachable, however short the timeout.",
		edits:     edit("internal/client/gone.go", "n.failures > 0 || n.last == nil {", "n.failures > 0 {"),
		campaigns: []campaign{unitTest("internal/client", "TestTheFirstQuestionDoesNotWait")}, short: true,
	},
	{
		name:      "a watch compares what is not shown",
		sentence:  "A watched table is printed again only if what it shows changes.",
		edits:     edit("internal/inspect/watch.go", "len(texts) == len(objects) && previous.shown == made.shown", "false"),
		campaigns: []campaign{unitTest("internal/inspect", "TestWatchComparesWhatIsShown")}, short: true,
	},
	{
		name:      "the culprit is not named",
		sentence:  "A trace prints the rule that drops or rejects the packet.",
		edits:     edit("internal/trace/culprit.go", "if by == nil || by.Policy", "if by == nil || by.Handle > 0 || by.Policy"),
		campaigns: []campaign{unitTest("internal/trace", "TestCulpritsAreNamed")}, short: true,
	},
	{
		name:      "explain stops at the missing port",
		sentence:  "explain names the slices whose ports have other names than the Service's.",
		edits:     edit("internal/explain/why.go", "if len(texts) == 0 {", "if len(texts) >= 0 {"),
		campaigns: []campaign{unitTest("internal/explain", "TestAnswers")}, short: true,
	},
	{
		name:      "headless Services are unknown",
		sentence:  "explain names the Service that lists an address which no node serves.",
		edits:     edit("source/reduce/unserved.go", "case spec.ClusterIP == corev1.ClusterIPNone:", "case false:"),
		campaigns: []campaign{unitTest("source/reduce", "TestUnserved")}, short: true,
	},
	{
		name:      "explain does not ask for unserved addresses",
		sentence:  "kubectl sluice explain asks the API server for Services that no proxy knows.",
		edits:     edit("internal/fleet/explain.go", "at >= 0 {", "at > len(answer.Reasons) {"),
		campaigns: []campaign{unitTest("internal/fleet", "TestExplainNamesServicesThatNoNodeServes")}, short: true,
	},
	{
		name:      "a family without a ClusterIP has no port",
		sentence:  "explain says that a Service is not served over a family, and not that it lacks the port.",
		edits:     edit("internal/explain/unowned.go", "case lists && !spec.ClusterIPs[w.family].IsValid():", "case false:"),
		campaigns: []campaign{unitTest("internal/explain", "TestAnswers")}, short: true,
	},
	{
		name:      "fragments without a difference are batches",
		sentence:  "BATCHES of a domain counts writes.",
		edits:     edit("dataplane/ledger/write.go", "if l.dirty.count > 0 {\n\t\tl.batches++", "if l.dirty.count >= 0 {\n\t\tl.batches++"),
		campaigns: []campaign{unitTest("dataplane/ledger", "TestBatchesAreWrites")}, short: true,
	},
	{
		name:      "foreign chains are not looked at",
		sentence:  "A chain of another program that drops new connections to endpoints is a problem.",
		edits:     edit("internal/host/needs/needs.go", "n.Chains, failed = Chains(ctx, w.Legacy)", "n.Chains, failed = nil, ctx.Err()"),
		campaigns: []campaign{unitTests("internal/host/needs")}, short: true,
	},
	{
		name:      "render has no seed",
		sentence:  "render and explain --manifests use the proxy's own options.",
		edits:     edit("internal/daemon/backend/rendering.go", ", Seed: o.HashSeed", ""),
		campaigns: []campaign{unitTest("internal/daemon/offline", "TestTheProxysOwnOptionsCount")}, short: true,
	},
	{
		name:      "render has its own mark",
		sentence:  "For each mode and each flag that changes rules, the printed rules are those that a start would load.",
		edits:     edit("internal/daemon/setup/iptables.go", "return options.Renderer(family, found), iptrender", "options.MasqueradeBit = 14\n\treturn options.Renderer(family, found), iptrender"),
		campaigns: []campaign{unitTest("internal/daemon/offline", "TestRenderedRulesAreThoseOfAStart")}, short: true,
	},
	{
		name:      "any process with the number is the culprit",
		sentence:  "The parents of a foreign process are those of the process that the kernel named.",
		edits:     edit("internal/host/holder/origin.go", ` || found != name {`, " {"),
		campaigns: []campaign{unitTest("internal/host/holder", "TestOriginOfAProcess")}, short: true,
	},
	{
		name:      "shadowed counts as applied",
		sentence:  "Status, page, metrics and /healthz?verbose count a shadowed Service as shadowed.",
		edits:     edit("observe/state/state.go", "c.Shadowed++", "c.Applied++"),
		campaigns: []campaign{unitTest("internal/daemon/inspection", "TestAListAndADetailAgree")}, short: true,
	},
	{
		name:      "an empty list has heads",
		sentence:  "An empty list is one sentence on standard error, in every list command.",
		edits:     edit("internal/inspect/page.go", "|| p.heads > 0 && p.rows == 0", ""),
		campaigns: []campaign{unitTest("cmd/sluice", "TestAnEmptyListIsOneSentence")}, short: true,
	},
	{
		name:      "a silent proxy is not named",
		sentence:  "A client command that gets no answer says which process is in which state.",
		edits:     edit("internal/inspect/silence.go", "if s.PID != 0 {", "if s.PID < 0 {"),
		campaigns: []campaign{unitTest("internal/inspect", "TestASilentProxyIsNamed")}, short: true,
	},
}
