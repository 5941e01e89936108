// SPDX-License-Identifier: Apache-2.0

package main

// commands are defects that let a command, or the page, say what is not so.
var commands = []mutation{
	{
		name:      "gone beside the rules of others",
		sentence:  "An endpoint is gone only once the rules of other proxies and modes are removed.",
		edits:     edit("internal/daemon/gone/watch.go", "a := &Answer{of: q.at, Err: others}", "a := &Answer{of: q.at}\n\t\t\t_ = others"),
		campaigns: []campaign{unitTest("internal/daemon/gone", "TestAsk_OthersUntilRemoved")}, short: true,
	},
	{
		name:      "the first question waits",
		sentence:  "A node that answers is not called unreachable, however short the timeout.",
		edits:     edit("internal/client/gone.go", "n.failures > 0 || n.last == nil {", "n.failures > 0 {"),
		campaigns: []campaign{unitTest("internal/client", "TestWait_FirstQueryDoesNotWait")}, short: true,
	},
	{
		name:      "a watch compares what is not shown",
		sentence:  "A watched table is printed again only if what it shows changes.",
		edits:     edit("internal/inspect/watch.go", "previous == now[name]", "previous == name"),
		campaigns: []campaign{unitTest("internal/inspect", "TestWatch_ComparesShownFields")}, short: true,
	},
	{
		name:      "the culprit is not named",
		sentence:  "A trace prints the rule that drops or rejects the packet.",
		edits:     edit("internal/trace/culprit.go", "if by == nil || by.Policy", "if by == nil || by.Handle > 0 || by.Policy"),
		campaigns: []campaign{unitTest("internal/trace", "TestNameCulprits")}, short: true,
	},
	{
		name:      "explain stops at the missing port",
		sentence:  "explain names the slices whose ports have other names than the Service's.",
		edits:     edit("internal/explain/why.go", "if len(texts) == 0 {", "if len(texts) >= 0 {"),
		campaigns: []campaign{unitTest("internal/explain", "TestExplain_AllModes")}, short: true,
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
		campaigns: []campaign{unitTest("internal/fleet", "TestExplain_UnservedServices")}, short: true,
	},
	{
		name:      "a family without a ClusterIP has no port",
		sentence:  "explain says that a Service is not served over a family, and not that it lacks the port.",
		edits:     edit("internal/explain/unowned.go", "case lists && !spec.ClusterIPs[w.family].IsValid():", "case false:"),
		campaigns: []campaign{unitTest("internal/explain", "TestExplain_AllModes")}, short: true,
	},
	{
		name:      "fragments without a difference are batches",
		sentence:  "BATCHES of a domain counts writes.",
		edits:     edit("dataplane/ledger/write.go", "if l.dirty.count > 0 {\n\t\tl.batches++", "if l.dirty.count >= 0 {\n\t\tl.batches++"),
		campaigns: []campaign{unitTest("dataplane/ledger", "TestBatches_CountWrites")}, short: true,
	},
	{
		name:      "the policy of iptables-legacy is not looked at",
		sentence:  "The policy DROP of FORWARD of iptables-legacy is a problem.",
		edits:     edit("internal/host/needs/chains.go", "if forward != nil && forward.Drops {", "if forward != nil && forward.Drops && prefix == \"\" {"),
		campaigns: []campaign{unitTest("internal/host/needs", "TestRead_LegacyIPTablesPolicy")}, short: true,
	},
	{
		name:      "a look creates tables",
		sentence:  "To look at iptables-legacy creates no table.",
		edits:     edit("dataplane/iptables/kernel/legacy_forward.go", "if !slices.Contains(LegacyTables(family), string(table)) {", "if slices.Contains(LegacyTables(family), \"\") {"),
		campaigns: []campaign{unitTest("internal/host/needs", "TestRead_LegacyIPTablesPolicy")}, short: true,
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
		campaigns: []campaign{unitTest("internal/daemon/offline", "TestRender_ProxyOptionsCount")}, short: true,
	},
	{
		name:      "the settings of the node lack the self-test",
		sentence:  "The rules of the self-test are printed and explained, as they are loaded.",
		edits:     edit("internal/daemon/config/settings.go", "s.SelfTest = service.PreferredSelfTest", "s.SelfTest = service.SelfTest{}"),
		campaigns: []campaign{unitTest("internal/daemon/offline", "TestRender_ProxyOptionsCount")}, short: true,
	},
	{
		name:      "render has its own mark",
		sentence:  "For each mode and each flag that changes rules, the printed rules are those that a start would load.",
		edits:     edit("internal/daemon/setup/iptables.go", "return options.Renderer(family, found), iptrender", "options.MasqueradeBit = 14\n\treturn options.Renderer(family, found), iptrender"),
		campaigns: []campaign{unitTest("internal/daemon/offline", "TestRender_MatchesStart")}, short: true,
	},
	{
		name:      "any process with the number is the culprit",
		sentence:  "The parents of a foreign process are those of the process that the kernel named.",
		edits:     edit("internal/host/holder/origin.go", ` || found != name {`, " {"),
		campaigns: []campaign{unitTest("internal/host/holder", "TestOrigin")}, short: true,
	},
	{
		name:      "shadowed counts as applied",
		sentence:  "Status, page, metrics and /healthz?verbose count a shadowed Service as shadowed.",
		edits:     edit("observe/state/state.go", "c.Shadowed++", "c.Applied++"),
		campaigns: []campaign{unitTest("internal/daemon/inspection", "TestService_ListAndDetailAgree")}, short: true,
	},
	{
		name:      "an empty list has heads",
		sentence:  "An empty list is one sentence on standard error, in every list command.",
		edits:     edit("internal/inspect/page.go", "|| p.heads > 0 && p.rows == 0", ""),
		campaigns: []campaign{unitTest("cmd/sluice", "TestCLI_EmptyListIsOneSentence")}, short: true,
	},
	{
		name:      "a silent proxy is not named",
		sentence:  "A client command that gets no answer says which process is in which state.",
		edits:     edit("internal/inspect/silence.go", "if s.PID != 0 {", "if s.PID < 0 {"),
		campaigns: []campaign{unitTest("internal/inspect", "TestClient_SilentProxy")}, short: true,
	},
	{
		name:      "wait counts domains",
		sentence:  "sluice wait --for applied reads the states that status counts.",
		edits:     edit("internal/inspect/print_status.go", "if c := s.States; c != nil {", "if c := s.States; c != nil && c.Applied < 0 {"),
		campaigns: []campaign{unitTest("internal/inspect", "TestStatus_Unapplied")}, short: true,
	},
	{
		name:      "wait takes what is too large for applied",
		sentence:  "It waits for Services that are too large.",
		edits:     edit("internal/inspect/print_status.go", "n += len(f.Services) + f.More", "n += f.More"),
		campaigns: []campaign{unitTest("internal/inspect", "TestStatus_Unapplied")}, short: true,
	},
	{
		name:      "domains apply what an actor does not render",
		sentence:  "A Service whose actor fails is held in each domain of status.",
		edits:     edit("internal/daemon/inspection/service.go", "case record.State == state.Failing:", `case record.State == "":`),
		campaigns: []campaign{unitTest("internal/daemon/inspection", "TestDomain_CountsMatchList")}, short: true,
	},
	{
		name:      "healthy is that of the rules",
		sentence:  "The status is healthy only if its word is not unhealthy.",
		edits:     edit("internal/daemon/inspection/inspection.go", "made.Healthy, made.Health = word != health.Unhealthy", "made.Healthy, made.Health = report.Healthy()"),
		campaigns: []campaign{unitTest("internal/daemon/inspection", "TestStatus_StandbyNotHealthy")}, short: true,
	},
	{
		name:      "the word of a node does not count",
		sentence:  "kubectl sluice status lists unhealthy nodes first.",
		edits:     edit("internal/fleet/status.go", "s.Healthy && s.Health != unhealthy", "s.Healthy"),
		campaigns: []campaign{unitTest("internal/fleet", "TestStatus_ProblemsFirst")}, short: true,
	},
	{
		name:      "wait asks a proxy that hangs",
		sentence:  "sluice wait ends once the proxy does not answer.",
		edits:     edit("internal/client/report.go", "return ctx.Err() == nil && errors.As", "return ctx.Err() != nil && errors.As"),
		campaigns: []campaign{unitTest("cmd/sluice", "TestWait_EndsIfProxyHangs")},
	},
	{
		name:      "a repeated question has two limits",
		sentence:  "A question that is repeated ends within the time of one.",
		edits:     edit("internal/inspect/client.go", "answer, _, err = c.try(ctx, path, query, end)", "answer, _, err = c.try(ctx, path, query, time.Now().Add(first))"),
		campaigns: []campaign{unitTest("internal/inspect", "TestClient_RepeatSharesLimit")}, short: true,
	},
	{
		name:      "unknown bytes are none",
		sentence:  "JSON of sluice top has no bytes that are not known.",
		edits:     edit("internal/inspect/top.go", "\tif i.bytesKnown() {", "\tif i.bytesKnown() || i.Connections > 0 {"),
		campaigns: []campaign{unitTest("internal/inspect", "TestTopList_UnknownBytesNotInJSON")}, short: true,
	},
	{
		name:      "only quarantined Services are held",
		sentence:  "The page about all nodes lists Services whose actors fail as held.",
		edits:     edit("internal/fleet/page.go", `if f := &n.from.Findings[i]; f.Kind == "parked" {`, `if f := &n.from.Findings[i]; f.Kind == "" {`),
		campaigns: []campaign{unitTest("internal/fleet", "TestPage_GroupsProblems")}, short: true,
	},
}
