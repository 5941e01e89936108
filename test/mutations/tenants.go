// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/sluice-proxy/sluice/test/defects"

// tenants are defects that let a tenant or an unknown caller spend what belongs to others, and those in what operators
// read and configure.
var tenants = []mutation{
	{
		name:      "kernel settings stay changed",
		sentence:  "The proxy restores the kernel settings that its mode needs.",
		edits:     edit("internal/daemon/surroundings.go", "\tif restore {\n", "\tif restore && now == nil {\n"),
		campaigns: []campaign{unitTest("internal/daemon", "TestSurroundings_ModeSettingsRestored")},
	},
	{
		name:     "free text is retained",
		sentence: "Text of API objects is checked, and not retained beyond the length of a name.",
		edits: []defects.Edit{
			{File: "source/reduce/value.go", Old: "if text == \"\" || isText(text, most) {", New: "if text == \"\" || most > 0 {"},
			{File: "source/reduce/value.go", Old: "if s == \"\" || len(s) > longNameMax {", New: "if s == \"\" {"},
			{File: "source/reduce/place.go", Old: "Zone: strings.Clone(zone)", New: "Zone: intern(zone)"},
		},
		campaigns: []campaign{unitTest("source/kube", "TestStores_ObjectTextNotRetained")},
	},
	{
		name:      "zones are free text",
		sentence:  "A zone, a hint or the name of a node is a name of at most 253 bytes.",
		edits:     edit("source/reduce/value.go", "isText(text, most) {\n\t\treturn text", "isText(text, len(text)) {\n\t\treturn text"),
		campaigns: []campaign{unitTest("source/reduce", "TestPlaces_InvalidNamesOmitted")}, short: true,
	},
	{
		name:      "objects of ClusterIPs count a tenth",
		sentence:  "One number limits the objects of a Service, whatever allocated its addresses.",
		edits:     edit("service/limit.go", "ClusterIP: base + endpoints,", "ClusterIP: (base + endpoints) / 10,"),
		campaigns: []campaign{unitTest("service", "TestLimit_CountedObjects")}, short: true,
	},
	{
		name:      "a Service gets the ports of the proxy",
		sentence:  "External IPs and load balancer IPs do not redirect the ports of the proxy and other denied ports.",
		edits:     edit("source/reduce/service.go", "slices.Contains(p.DeniedPorts, port.Port) {", "slices.Contains(p.DeniedPorts, port.NodePort) {"),
		campaigns: []campaign{unitTest("source/reduce", "TestPolicy_DeniedPorts")}, short: true,
	},
	{
		name:      "denied ports are served outside",
		sentence:  "A denied port has no frontend and no object at external IPs and load balancer IPs.",
		edits:     edit("service/resolve.go", "if port.NotOutside {", "if port.NotOutside && port.Port == 0 {"),
		campaigns: []campaign{unitTest("service", "TestResolve_PortsNotServedOutside")}, short: true,
	},
	{
		name:      "the metrics address has no audience",
		sentence:  "The metrics address accepts tokens of its own audience.",
		edits:     edit("internal/daemon/security/reviews.go", `return []string{a.Audience, ""}`, `return []string{""}`),
		campaigns: []campaign{unitTest("internal/daemon/security", "TestReviews_MetricsAudiences")}, short: true,
	},
	{
		name:      "unknown callers share one bucket",
		sentence:  "The rate of unknown callers is limited by address.",
		edits:     edit("internal/daemon/security/turns.go", "!t.sources.accept(from) || ", ""),
		campaigns: []campaign{unitTest("internal/daemon/security", "TestTurns_OneAddressFloods")}, short: true,
	},
	{
		name:      "a new token makes a caller unknown",
		sentence:  "A caller that was allowed keeps its place by address as well as by token.",
		edits:     edit("internal/daemon/security/turns.go", "t.knownFrom.Get(from); known {", "t.knownFrom.Get(from); known && who == (digest{}) {"),
		campaigns: []campaign{unitTest("internal/daemon/security", "TestTurns_KnownCallerNewToken")}, short: true,
	},
	{
		name:      "addresses of clients are for the network",
		sentence:  "Lists with addresses of clients need an authorized caller.",
		edits:     edit("internal/inspect/exposure.go", "of == Authorized && authorized {", "of == Authorized {"),
		campaigns: []campaign{unitTest("internal/inspect", "TestExposure_EveryPath")}, short: true,
	},
	{
		name:      "errors of the kernel are for the network",
		sentence:  "Everyone on the network sees no addresses of clients, no command lines and no errors of the kernel.",
		edits:     edit("internal/inspect/exposure.go", "		hide(&d.LastError)\n", ""),
		campaigns: []campaign{unitTest("internal/inspect", "TestExposure_TextsHiddenFromNetwork")}, short: true,
	},
	{
		name:      "an error of a question is for the network",
		sentence:  "A question that fails shows no error of the kernel to the network.",
		edits:     edit("internal/inspect/handler.go", "	if h.public {\n		text =", "	if h.public && code == http.StatusOK {\n		text ="),
		campaigns: []campaign{unitTest("internal/inspect", "TestExposure_TextsHiddenFromNetwork")}, short: true,
	},
	{
		name:      "problems of findings are for the network",
		sentence:  "Everyone on the network sees the kinds of findings, and no problems.",
		edits:     edit("observe/state/report.go", "	f.Problem = Hidden\n	if f.Meaning", "	if f.Meaning"),
		campaigns: []campaign{unitTest("internal/inspect", "TestExposure_TextsHiddenFromNetwork"), unitTest("observe/health", "TestHandler_DetailsOnlyForLocalClients")}, short: true,
	},
	{
		name:      "authorized callers see no details of health",
		sentence:  "An authorized caller at the metrics address sees details of health.",
		edits:     edit("internal/daemon/secured.go", "p.reviews != nil || web.OnHost(r)", "web.OnHost(r)"),
		campaigns: []campaign{unitTest("internal/daemon", "TestProtection_HealthDetails")}, short: true,
	},
	{
		name:      "a deletion ends a list",
		sentence:  "Lists of all Services are one request, and survive a deletion meanwhile.",
		edits:     edit("internal/inspect/list.go", "one != nil && !list.item(", "one == nil || !list.item("),
		campaigns: []campaign{unitTest("internal/inspect", "TestClient_AllInOneQuestion")}, short: true,
	},
	{
		name:      "a preflight omits an address",
		sentence:  "A preflight checks all addresses on which the proxy listens.",
		edits:     edit("internal/daemon/setup/listens.go", `o.Sluice.Inspection.BindAddress; address != "" {`, `o.Sluice.Inspection.BindAddress; address == "-" {`),
		campaigns: []campaign{unitTest("internal/daemon/setup", "TestListens")}, short: true,
	},
	{
		name:      "traffic is counted for the owner in another family",
		sentence:  "The traffic of a frontend belongs to the Service that has it.",
		edits:     edit("observe/metrics/traffic.go", "m.config.Owner(service.Family(family), f)", "m.config.Owner(service.IPv4, f)"),
		campaigns: []campaign{unitTest("observe/metrics", "TestTraffic_CountedForOwner")}, short: true,
	},
	{
		name:      "a drain cuts connections of another Service",
		sentence:  "A drain of a node port leaves alone connections to another Service at the same address and port.",
		edits:     edit("dataplane/conntrack/cleaner/judge.go", " && s.table.owner(to) == nil && (s.owned == nil || !s.owned(to))", ""),
		campaigns: []campaign{unitTest("dataplane/conntrack/cleaner", "TestDrains_NodePortCutsNoOtherService")}, short: true,
	},
	{
		name:      "a submitted endpoint drains too early",
		sentence:  "The drain deadline of an endpoint begins with the first view that lacks it.",
		edits:     edit("dataplane/conntrack/cleaner/drains.go", " && !next.leads(old.portID, e)", ""),
		campaigns: []campaign{unitTest("dataplane/conntrack/cleaner", "TestDrains_SubmittedEndpoint")}, short: true,
	},
	{
		name:      "an endpoint of an overtaken view never leaves",
		sentence:  "Connections to an endpoint that only a submitted view had are cut at the drain deadline.",
		edits:     edit("dataplane/conntrack/cleaner/drains.go", "	s.follow(former.coming, h.coming, now)\n", ""),
		campaigns: []campaign{unitTest("dataplane/conntrack/cleaner", "TestDrains_SubmittedEndpoint")}, short: true,
	},
	{
		name:      "a sweep is done with changes that came meanwhile",
		sentence:  "The next sweep deletes a flow that became stale during a sweep.",
		edits:     edit("dataplane/conntrack/cleaner/sweep.go", "	t.todo = newTodo()\n", ""),
		campaigns: []campaign{unitTest("dataplane/conntrack/cleaner", "TestCleaner_ChangeDuringSweep")}, short: true,
	},
	{
		name:      "what a failed sweep has not done is forgotten",
		sentence:  "A stale flow is deleted even if a sweep fails.",
		edits:     edit("dataplane/conntrack/cleaner/sweep.go", "	s.table.todo.restore(s.todo)\n", ""),
		campaigns: []campaign{unitTest("dataplane/conntrack/cleaner", "TestSweep_FailureStaysPending")}, short: true,
	},
	{
		name:      "the listener outlives its subscribers",
		sentence:  "A minute after the last use, the proxy does not listen for connections.",
		edits:     edit("dataplane/conntrack/feed.go", "len(f.subscribed) == 0 && f.kernel != nil {\n\t\tf.idle", "len(f.subscribed) < 0 {\n\t\tf.idle"),
		campaigns: []campaign{unitTest("dataplane/conntrack", "TestFeed")}, short: true,
	},
	{
		name:      "text that turns around is printed",
		sentence:  "Escapes replace all characters that do not print, such as U+202E.",
		edits:     edit("internal/terminal/terminal.go", "return !unicode.IsPrint(r)", "return unicode.IsControl(r)"),
		campaigns: []campaign{unitTest("internal/terminal", "TestText")}, short: true,
	},
	{
		name:      "in sync with a rejected file",
		sentence:  "status does not say that the source is in sync while a file is rejected.",
		edits:     edit("internal/inspect/print_status.go", "return f.Kind == kindRejected }", `return f.Kind == kindRejected && f.About == "" }`),
		campaigns: []campaign{unitTest("internal/inspect", "TestStatus_RejectedFileSource")}, short: true,
	},
	{
		name:      "the self-test speaks for the pods",
		sentence:  "The line of the self-test says that it tests the loopback of the node.",
		edits:     edit("internal/inspect/print_status.go", `"loopback of this node: "+`, ""),
		campaigns: []campaign{unitTest("internal/inspect", "TestStatus_SelfTest")}, short: true,
	},
}
