// SPDX-License-Identifier: Apache-2.0

// Package depcheck holds the import directions of this module as data, and a
// test that fails with the reason when one is broken.
package depcheck

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sluice-proxy/sluice"

// layer says what a package of ours may import of ours. A package that is not listed
// here fails, so that a new one gets a place on purpose, and so does a permission
// that the package does not use.
type layer struct {
	pkg  string
	may  []string
	why  string
	test bool // imported by tests and test programs only
}

var layers = []layer{
	{pkg: "service", why: "values import nothing of ours"},
	{pkg: "mailbox", why: "one generic type, good for anybody"},
	{pkg: "internal/sleep", why: "pauses, good for anybody"},
	{pkg: "supervisor", may: []string{"internal/sleep", "mailbox"}, why: "it knows nothing about Services"},
	{pkg: "source", may: []string{"service", "source/reduce"}, why: "a source posts values; who listens is not its business"},
	{pkg: "source/reduce", may: []string{"service"}, why: "API objects in, values out"},
	{pkg: "test/sourcetest", may: []string{"service", "source", "test/testenv"}, why: "a recording sink for tests", test: true},
	{pkg: "source/manifest", may: []string{"internal/document", "internal/host/watch", "service", "source", "source/reduce"}, why: "fills the cache"},
	{pkg: "source/kube", may: []string{"service", "source", "source/reduce", "internal/sleep"}, why: "fills the cache"},
	{pkg: "actors", may: []string{"mailbox", "dataplane", "service"}, why: "actors meet aggregators in the root package only, and know no backend"},
	{pkg: "dataplane", may: []string{"dataplane/traffic", "service"}, why: "the language between actors, aggregator and writers"},
	{pkg: "dataplane/ledger", may: []string{"dataplane", "service"}, why: "pure bookkeeping"},
	{pkg: "internal/host/hostaddress", why: "plain addresses and devices out"},
	{pkg: "dataplane/iptables/kernel", may: []string{"dataplane", "dataplane/iptables/render", "dataplane/iptables/rules", "dataplane/traffic", "internal/host/holder", "internal/netlink", "service", "internal/plural"}, why: "a backend never imports another"},
	{pkg: "dataplane/iptables/render", may: []string{"dataplane", "dataplane/iptables/rules", "dataplane/iptables/tree", "service"}, why: "pure: no kernel is read"},
	{pkg: "dataplane/iptables/rules", why: "texts and data"},
	{pkg: "dataplane/iptables/tree", may: []string{"dataplane", "dataplane/iptables/rules", "service"}, why: "pure layout"},
	{pkg: "dataplane/traffic", may: []string{"service"}, why: "plain values that backends count and reports read"},
	{pkg: "dataplane/nftables/kernel", may: []string{"dataplane", "dataplane/nftables/render", "dataplane/nftables/rules", "dataplane/nftables/wire", "dataplane/traffic", "internal/host/holder", "internal/netlink", "service", "internal/sleep"}, why: "writes and reads what render returns; a backend never imports another"},
	{pkg: "dataplane/nftables/render", may: []string{"dataplane", "dataplane/nftables/rules", "dataplane/slots", "internal/netlink", "service"}, why: "values in, objects out; it knows no socket, and a backend never imports another"},
	{pkg: "dataplane/nftables/rules", may: []string{"dataplane/slots", "internal/netlink", "service"}, why: "rules as data; it knows no chain and no set by name"},
	{pkg: "dataplane/slots", may: []string{"service"}, why: "pure arithmetic"},
	{pkg: "dataplane/nftables/hooks", may: []string{"dataplane/nftables/owned", "dataplane/nftables/rules", "dataplane/nftables/wire", "service"}, why: "a table that decides nothing, in any mode; it knows no table of the proxy"},
	{pkg: "dataplane/nftables/owned", may: []string{"dataplane/nftables/rules", "dataplane/nftables/wire", "internal/netlink", "service"}, why: "tables that end with their process; it knows no table of the proxy"},
	{pkg: "dataplane/nftables/sample", may: []string{"dataplane/nftables/owned", "dataplane/nftables/rules", "dataplane/nftables/wire", "internal/netlink", "service"}, why: "first packets of connections, before any rule"},
	{pkg: "dataplane/nftables/trace", may: []string{"dataplane/nftables/owned", "dataplane/nftables/rules", "dataplane/nftables/wire", "internal/netlink", "service"}, why: "packets in all tables, of any program; it knows no table of the proxy"},
	{pkg: "dataplane/nftables/wire", may: []string{"internal/netlink"}, why: "transactions of nf_tables; it knows nothing of Services"},
	{pkg: "dataplane/ipvs/kernel", may: []string{"dataplane", "dataplane/ipvs/render", "dataplane/ipvs/wire", "internal/netlink", "service", "internal/sleep"}, why: "writes and reads what render returns; a backend never imports another; rules are written by whoever it is given"},
	{pkg: "dataplane/ipvs/render", may: []string{"dataplane", "dataplane/ipvs/wire", "service"}, why: "values in, objects out; it opens no socket, and a backend never imports another"},
	{pkg: "dataplane/ipvs/wire", may: []string{"dataplane", "dataplane/traffic", "internal/netlink", "service"}, why: "sockets and encoders; it knows frontends and no Services"},
	{pkg: "dataplane/listeners", may: []string{"dataplane", "dataplane/relay", "internal/host/holder", "service", "internal/sleep"}, why: "sockets as objects; it knows nothing of what they serve, and two backends share it"},
	{pkg: "dataplane/localport", may: []string{"dataplane", "dataplane/listeners", "dataplane/relay", "service"}, why: "a backend never imports another; it forwards to addresses, whoever translates them"},
	{pkg: "dataplane/relay", may: []string{"service", "supervisor", "internal/sleep"}, why: "sockets and goroutines; it knows no objects, and two backends share it"},
	{pkg: "dataplane/userspace", may: []string{"dataplane", "dataplane/listeners", "dataplane/relay", "dataplane/slots", "dataplane/traffic", "internal/netlink", "service"}, why: "a backend never imports another"},
	{pkg: "test/nftmodel", may: []string{"dataplane", "dataplane/nftables/kernel", "dataplane/nftables/wire", "dataplane/slots", "internal/netlink", "service"}, why: "a model of nf_tables behind the nftables socket contract; it shares no rule with the product", test: true},
	{pkg: "test/writertest", may: []string{"dataplane", "dataplane/ledger", "service", "internal/host/netns", "test/netnstest", "test/testenv"}, why: "the same cases for each writer", test: true},
	{pkg: "test/rendertest", may: []string{"dataplane", "dataplane/iptables/render", "dataplane/ipvs/render", "service"}, why: "the same Services for what is rendered and for what is written", test: true},
	{pkg: "test/testenv", why: "what a test needs, which tier runs it, and how long it waits", test: true},
	{pkg: "test/conntracktest", may: []string{"internal/host/netns", "internal/netlink", "test/netnstest"}, why: "entries that the kernel could have made; it knows no Services", test: true},
	{pkg: "test/netnstest", may: []string{"internal/host/netns", "internal/sleep", "test/testenv"}, why: "namespaces that end with a test", test: true},
	{pkg: "aggregator", may: []string{"mailbox", "dataplane", "dataplane/ledger", "service", "internal/sleep"}, why: "aggregators meet actors in the root package only, and know no backend"},
	{pkg: "dataplane/conntrack", may: []string{"dataplane/traffic", "internal/netlink", "service"}, why: "the kernel's connection table, entry by entry; it knows what a Service's frontend is, and no Services"},
	{pkg: "dataplane/conntrack/cleaner", may: []string{"dataplane/conntrack", "internal/host/hostaddress", "internal/sleep", "service"}, why: "an observer of applied rules; it knows no backend"},
	{pkg: "dataplane/conntrack/account", may: []string{"dataplane/conntrack", "dataplane/traffic", "service"}, why: "sums of readings of the connection table; it knows no backend, and deletes nothing"},
	{pkg: "observe", may: []string{"actors", "aggregator", "internal/sleep", "supervisor", "dataplane", "service", "source"}, why: "nothing that works depends on how it is watched"},
	{pkg: "observe/state", may: []string{"service"}, why: "plain types, for those who fill and those who show them"},
	{pkg: "observe/usage", may: []string{"dataplane/traffic", "service", "internal/sleep"}, why: "differences of totals; it knows no backend"},
	{pkg: "observe/book", may: []string{"actors", "aggregator", "dataplane", "dataplane/ledger", "observe/state", "service", "source", "supervisor"}, why: "remembers what is announced; no reader"},
	{pkg: "observe/health", may: []string{"aggregator", "dataplane", "internal/plural", "mailbox", "observe/book", "observe/state", "observe/web", "service"}, why: "judges by values and by the book; no backend"},
	{pkg: "observe/metrics", may: []string{"actors", "aggregator", "dataplane/conntrack/cleaner", "dataplane", "dataplane/traffic", "observe/book", "observe/state", "observe/usage", "service", "source", "supervisor"}, why: "counts what is announced; no backend, and nobody's command"},
	{pkg: "internal/daemon/traces", may: []string{"actors", "aggregator", "dataplane", "internal/daemon/part", "observe/metrics", "service", "source", "supervisor"}, why: "makes spans of what is announced; no backend"},
	{pkg: "internal/daemon/part", may: []string{"aggregator", "dataplane/conntrack", "internal/daemon/setup", "internal/inspect", "observe", "observe/events", "observe/health", "observe/metrics", "observe/state", "proxy", "service", "source"}, why: "what a part is, and what it knows of the process; it knows no part"},
	{pkg: "internal/daemon/offload", may: []string{"dataplane/nftables/kernel", "internal/daemon/config", "internal/daemon/part", "internal/host/hostaddress", "internal/inspect", "observe/health", "observe/state", "internal/sleep"}, why: "a part; it knows no server"},
	{pkg: "observe/web", may: []string{"internal/host/holder", "internal/terminal", "internal/sleep"}, why: "HTTP servers and pages; what they show is given as handlers and functions"},
	{pkg: "observe/events", may: []string{"actors", "aggregator", "internal/plural", "supervisor", "service", "source", "observe/state"}, why: "a listener whose listeners are elsewhere"},
	{pkg: "", why: "a picture of the house"},
	{pkg: "proxy", may: []string{"actors", "aggregator", "dataplane", "dataplane/ledger", "observe", "service", "source", "supervisor", "internal/sleep"}, why: "the assembly; commands choose sources and backends"},
	{pkg: "examples", why: "data"},
	{pkg: "test/apitest", why: "an API server without the rest of Kubernetes", test: true},
	{pkg: "internal/daemon", may: []string{"dataplane/conntrack", "dataplane/conntrack/account", "dataplane/conntrack/cleaner", "dataplane/iptables/kernel", "dataplane/nftables/hooks", "dataplane/relay", "dataplane/traffic", "internal/daemon/backend", "internal/daemon/balance", "internal/daemon/config", "internal/daemon/feed", "internal/daemon/flows", "internal/daemon/gone", "internal/daemon/inspection", "internal/daemon/lab", "internal/daemon/logging", "internal/daemon/peer", "internal/daemon/security", "internal/daemon/selftest", "internal/daemon/setup", "internal/host/needs", "internal/host/sysctl", "internal/inspect", "internal/plural", "internal/ui", "observe", "observe/book", "observe/events", "observe/health", "observe/metrics", "observe/state", "observe/usage", "observe/web", "proxy", "service", "source", "source/kube", "source/manifest", "actors", "internal/daemon/offload", "internal/daemon/part", "internal/daemon/traces", "internal/sleep"}, why: "the process that serves puts everything together"},
	{pkg: "internal/daemon/setup", may: []string{"aggregator", "dataplane", "dataplane/conntrack", "dataplane/iptables/kernel", "dataplane/iptables/render", "dataplane/ipvs/render", "dataplane/ipvs/wire", "dataplane/userspace", "internal/daemon/backend", "internal/daemon/config", "internal/daemon/logging", "internal/daemon/peer", "internal/host/bridge", "internal/host/hostaddress", "internal/host/sysctl", "proxy", "service", "source", "source/reduce", "dataplane/nftables/render", "dataplane/traffic", "internal/inspect"}, why: "the modes as values, the backend and the node of a configuration; it knows nothing of a process that serves"},
	{pkg: "internal/daemon/security", may: []string{"internal/host/watch", "observe/web"}, why: "certificates from files, and questions to an API server by a client that it is given; it knows no proxy"},
	{pkg: "internal/daemon/selftest", may: []string{"service", "internal/daemon/part", "internal/inspect", "observe/health", "observe/metrics", "observe/state", "internal/sleep"}, why: "connects as any client does; others put the rules into the kernel"},
	{pkg: "internal/daemon/feed", may: []string{"internal/daemon/backend", "internal/daemon/setup", "proxy", "service", "source", "source/kube", "source/manifest", "observe/state"}, why: "sources for a configuration; the only way to an API server"},
	{pkg: "internal/daemon/balance", may: []string{"dataplane/conntrack", "service", "internal/daemon/part", "observe/metrics", "proxy"}, why: "observations of connections, by functions that it is given; it knows no server"},
	{pkg: "internal/daemon/flows", may: []string{"dataplane/conntrack", "dataplane/nftables/sample", "dataplane/traffic", "service", "dataplane/userspace", "internal/daemon/config", "internal/daemon/part", "internal/inspect", "observe/metrics", "proxy", "internal/sleep"}, why: "records of connections, by functions that it is given; it knows no server"},
	{pkg: "internal/daemon/gone", may: []string{"aggregator", "dataplane/ledger", "internal/inspect", "observe/web", "service"}, why: "asks a proxy that it is given"},
	{pkg: "internal/daemon/inspection", may: []string{"aggregator", "dataplane", "dataplane/conntrack", "dataplane/conntrack/account", "dataplane/iptables/kernel", "dataplane/iptables/render", "dataplane/ledger", "dataplane/nftables/kernel", "dataplane/nftables/render", "dataplane/nftables/wire", "dataplane/traffic", "dataplane/userspace", "internal/daemon/backend", "internal/daemon/config", "internal/daemon/feed", "internal/daemon/gone", "internal/daemon/setup", "internal/explain", "internal/host/hostaddress", "internal/host/needs", "internal/inspect", "observe/events", "observe/health", "observe/metrics", "observe/state", "observe/usage", "service", "internal/daemon/part", "internal/terminal", "observe/book", "observe/web", "internal/sleep"}, why: "answers from a proxy that it is given; it knows no server"},
	{pkg: "internal/daemon/preflight", may: []string{"dataplane/iptables/kernel", "internal/daemon/backend", "internal/daemon/config", "internal/daemon/feed", "internal/daemon/peer", "internal/daemon/security", "internal/host/hostaddress", "internal/daemon/setup", "internal/host/bridge", "internal/host/holder", "internal/host/needs", "internal/host/sysctl", "service", "internal/daemon/offload", "internal/terminal"}, why: "a start up to the first change; it knows no server"},
	{pkg: "internal/daemon/offline", may: []string{"dataplane", "dataplane/iptables/kernel", "internal/daemon/backend", "internal/daemon/logging", "internal/daemon/peer", "internal/daemon/setup", "internal/explain", "internal/host/hostaddress", "internal/host/sysctl", "internal/render", "observe", "proxy", "service", "source", "source/manifest", "internal/plural", "internal/terminal"}, why: "commands without a running proxy"},
	{pkg: "internal/daemon/backend", may: []string{"proxy", "aggregator", "dataplane/conntrack", "dataplane", "dataplane/iptables/kernel", "dataplane/iptables/render", "dataplane/ipvs/kernel", "dataplane/ipvs/render", "dataplane/ipvs/wire", "dataplane/localport", "dataplane/nftables/kernel", "dataplane/nftables/render", "dataplane/relay", "dataplane/traffic", "dataplane/userspace", "internal/daemon/config", "internal/host/sandbox", "internal/host/sysctl", "service", "internal/plural"}, why: "builds domains from a backend for the commands"},
	{pkg: "internal/daemon/config", may: []string{"proxy", "aggregator", "internal/document", "internal/host/watch", "internal/terminal", "service"}, why: "flags and files in, settings out; commands build things from them"},
	{pkg: "internal/daemon/demo", may: []string{"actors", "aggregator", "examples", "observe", "service", "source", "supervisor", "internal/daemon", "internal/daemon/config", "internal/daemon/feed", "internal/daemon/inspection", "internal/daemon/lab", "internal/explain", "internal/inspect", "internal/terminal", "internal/sleep"}, why: "a command's story about a running proxy"},
	{pkg: "internal/inspect", may: []string{"dataplane/traffic", "internal/explain", "internal/plural", "internal/sleep", "internal/terminal", "observe/state", "service"}, why: "answers as JSON; the daemon makes them"},
	{pkg: "internal/explain", may: []string{"dataplane", "dataplane/iptables/rules", "dataplane/ipvs/render", "dataplane/ipvs/wire", "dataplane/localport", "dataplane/nftables/render", "dataplane/nftables/rules", "internal/render", "service", "internal/terminal"}, why: "renders and evaluates; the kernel is asked by whoever calls it"},
	{pkg: "internal/trace", may: []string{"dataplane/iptables/kernel", "dataplane/nftables/render", "dataplane/nftables/trace", "internal/explain", "service", "internal/plural", "internal/terminal"}, why: "traced packets compared with a prediction that it is given; it queries no proxy"},
	{pkg: "test/doctest", why: "runs the commands of a page; it knows no proxy", test: true},
	{pkg: "internal/daemon/logging", may: []string{"internal/daemon/config", "internal/terminal"}, why: "one logger for a process, by its configuration; what is logged is the business of others"},
	{pkg: "internal/daemon/lab", may: []string{"internal/host/netns", "service", "source", "source/manifest"}, why: "a network for a sandbox, by the manifests; it knows no proxy"},
	{pkg: "internal/daemon/plan", may: []string{"dataplane", "internal/daemon/backend", "internal/plural", "internal/daemon/feed", "internal/daemon/logging", "internal/daemon/peer", "internal/daemon/setup", "internal/host/sysctl", "internal/render", "proxy", "service", "source", "source/kube", "source/manifest", "internal/terminal"}, why: "a start up to the first write, and what its batches would change"},
	{pkg: "internal/render", may: []string{"dataplane", "dataplane/ledger", "service", "source"}, why: "pure: a full picture in, objects out"},
	{pkg: "internal/host/netns", why: "plain namespaces"},
	{pkg: "docs", why: "checks the pages", test: true},
	{pkg: "internal/netlink", why: "the transport of whoever encodes messages; it knows nothing of Services"},
	{pkg: "internal/host/sysctl", why: "files in, files out"},
	{pkg: "internal/daemon/peer", may: []string{"internal/host/holder", "internal/sleep"}, why: "processes and sockets; it knows nothing of Services"},
	{pkg: "internal/host/bridge", may: []string{"service"}, why: "interfaces and files in, a list out"},
	{pkg: "internal/host/needs", may: []string{"dataplane/iptables/kernel", "dataplane/nftables/rules", "dataplane/nftables/wire", "internal/host/bridge", "internal/netlink", "service"}, why: "settings and chains of other programs in, a list of problems out"},
	{pkg: "internal/host/holder", why: "processes and sockets; it knows nothing of Services"},
	{pkg: "internal/host/sandbox", why: "plain namespaces"},
	{pkg: "internal/host/watch", why: "plain files; it knows nothing of what is in them"},
	{pkg: "internal/ui", may: []string{"internal/inspect", "observe/state", "service"}, why: "shows what package inspect answers; it knows no proxy"},
	{pkg: "internal/terminal", why: "text in, text without control characters out, and tables of it"},
	{pkg: "test/terminaltest", why: "fills answers and reads outputs; it knows neither", test: true},
	{pkg: "internal/plural", why: "numbers in, text out"},
	{pkg: "internal/document", why: "text and a struct in, mistakes with lines out; what the values mean is the business of their readers"},
	{pkg: "internal/depcheck", why: "this test"},
	{pkg: "internal/client", may: []string{"internal/inspect", "internal/plural", "internal/sleep", "source/kube", "internal/terminal"}, why: "asks proxies that it is given, and health servers over the network"},
	{pkg: "internal/fleet", may: []string{"internal/explain", "internal/inspect", "internal/plural", "internal/ui", "observe/state", "service", "source/kube", "source/reduce", "internal/client", "internal/terminal"}, why: "a client of all proxies; it compares them with what the API server has, and shows them with the files of the page about one proxy"},
	{pkg: "cmd/kubectl-sluice", may: []string{"internal/fleet", "internal/terminal", "internal/inspect"}, why: "exit statuses; internal/fleet has the commands"},
	{pkg: "cmd/sluice", may: []string{"internal/daemon", "internal/daemon/config", "internal/daemon/demo", "internal/daemon/feed", "internal/daemon/inspection", "internal/daemon/logging", "internal/daemon/offline", "internal/daemon/plan", "internal/daemon/preflight", "internal/daemon/setup", "internal/explain", "internal/fleet", "internal/host/sandbox", "internal/inspect", "internal/terminal", "internal/trace", "internal/client"}, why: "flags, help and exit statuses; the packages of the daemon do the work"},
	{pkg: "test/campaign/faults", why: "the whole proxy on the real kernel", test: true},
	{pkg: "test/campaign", may: []string{"test/apitest", "test/defects", "internal/host/netns", "test/netnstest", "test/process", "service"}, why: "knows the proxy as a program only", test: true},
	{pkg: "test/campaign/lookups", may: []string{"test/apitest", "internal/host/netns", "test/netnstest", "test/process", "service"}, why: "knows the proxy as a program only", test: true},
	{pkg: "test/scenarios", may: []string{"test/scenarios/explained", "test/scenarios/generate", "test/scenarios/list", "test/scenarios/network", "test/scenarios/play", "test/scenarios/script"}, why: "plays the list and prints a table", test: true},
	{pkg: "test/scenarios/script", why: "text in, lines out", test: true},
	{pkg: "test/scenarios/list", may: []string{"test/scenarios/script"}, why: "the scenarios as text", test: true},
	{pkg: "test/scenarios/fixture", may: []string{"service"}, why: "names of the world, and what can be asked in it", test: true},
	{pkg: "test/scenarios/cluster", may: []string{"test/apitest", "service", "test/scenarios/fixture"}, why: "statements in, API objects out", test: true},
	{pkg: "test/scenarios/network", may: []string{"test/apitest", "internal/host/netns", "test/netnstest", "test/process", "test/ruleset", "service", "test/scenarios/fixture"}, why: "the world of namespaces; it knows the proxy as a program only", test: true},
	{pkg: "test/scenarios/model", may: []string{"proxy", "dataplane/nftables/render", "internal/daemon/config", "service", "source", "source/reduce", "test/apitest", "test/nftmodel", "test/scenarios/fixture"}, why: "the world in memory, with the whole proxy in it", test: true},
	{pkg: "test/scenarios/explained", may: []string{"internal/explain", "internal/host/hostaddress", "internal/inspect", "test/scenarios/fixture", "test/scenarios/network"}, why: "asks the running proxy what packets have asked", test: true},
	{pkg: "test/scenarios/expect", may: []string{"service", "test/apitest", "test/reference", "test/scenarios/fixture"}, why: "what is right, by a plain reading of the rules; it takes the names of families from package service and nothing else of the proxy", test: true},
	{pkg: "test/scenarios/generate", may: []string{"service", "test/scenarios/play", "test/scenarios/expect", "test/scenarios/script"}, why: "makes scenarios up; the answers are the reference's", test: true},
	{pkg: "test/scenarios/play", may: []string{"internal/host/netns", "test/netnstest", "service", "test/scenarios/cluster", "test/scenarios/fixture", "test/scenarios/network", "test/scenarios/script"}, why: "gives statements their meaning", test: true},
	{pkg: "test/harness", may: []string{"internal/host/netns", "test/harness/sandbox", "test/netnstest", "test/process", "test/ruleset", "test/testenv"}, why: "a cluster around the proxy, which it knows as a program only", test: true},
	{pkg: "test/harness/sandbox", why: "plain namespaces and privileges", test: true},
	{pkg: "test/process", may: []string{"internal/host/netns"}, why: "a program on a host; it knows no flags", test: true},
	{pkg: "test/ruleset", why: "listings as text in, lines out", test: true},
	{pkg: "test/reference", why: "endpoint selection by a plain reading of the rules; it shares nothing with the product, not even types", test: true},
	{pkg: "test/hostile", why: "the reduction and every renderer, with input that means harm", test: true},
	{pkg: "test/sim", may: []string{"actors", "aggregator", "dataplane", "dataplane/nftables/kernel", "dataplane/nftables/render", "dataplane/nftables/rules", "dataplane/nftables/wire", "internal/netlink", "observe", "observe/health", "proxy", "service", "source", "supervisor", "test/nftmodel", "test/reference"}, why: "the whole proxy in one process", test: true},
	{pkg: "test/defects", why: "texts of the tree in, texts for the compiler out", test: true},
	{pkg: "test/mutations", may: []string{"test/defects"}, why: "builds and runs tests; it knows the proxy as text only", test: true},
}

// outside says which packages may import a foreign module, with the reason.
var outside = []struct {
	prefix string
	only   []string
	why    string
}{
	{"k8s.io/client-go", []string{"source/kube", "observe/events", "internal/daemon/feed", "internal/daemon/security", "internal/fleet", "internal/inspect", "test/harness"}, "only the API source, the client of all proxies, the recorder of events and the Lease of a configuration talk to an API server; the feed hands them what it takes to connect; internal/inspect evaluates JSONPaths"},
	{"k8s.io/api/", []string{"source", "observe/events", "internal/daemon/security", "internal/fleet", "test/apitest", "test/campaign", "test/harness", "test/scenarios/cluster", "test/scenarios/expect", "test/scenarios/model"}, "only sources know API types; everybody else has service values"},
	{"k8s.io/apimachinery", []string{"source", "observe/events", "internal/daemon/config", "internal/daemon/security", "internal/fleet", "internal/inspect", "test/apitest", "test/campaign", "test/harness", "test/scenarios/cluster", "test/scenarios/expect", "test/scenarios/model"}, "only sources know API types; events and the configuration are API objects; internal/inspect decodes JSON and field selectors as kubectl does"},
	{"go.opentelemetry.io/", []string{"internal/daemon/traces"}, "spans are made in one place"},
	{"github.com/prometheus/", []string{"observe/metrics", "test/scenarios/play"}, "metrics are made in one place, and scenarios read them"},
	{"github.com/vishvananda/", []string{"dataplane", "internal/host", "test/harness", "test/netnstest"}, "only backends, and what looks at the host, open netlink sockets"},
	{"github.com/moby/ipvs", []string{"dataplane/ipvs/wire"}, "one package speaks to IPVS"},
	{"github.com/sirupsen/logrus", []string{"dataplane/ipvs/wire"}, "to silence moby/ipvs; the process has one logger"},
	{"github.com/coreos/go-iptables", []string{"dataplane/iptables/kernel"}, "only the backend runs its tools"},
	{"go.uber.org/zap", []string{"observe", "source", "internal/daemon"}, "the core announces events and formats nothing"},
	{"os/exec", []string{"dataplane/iptables/kernel", "internal", "cmd", "test/campaign", "test/conntracktest", "test/defects", "test/doctest", "test/harness", "test/mutations", "test/netnstest", "test/process", "test/testenv", "test/scenarios/network"}, "only backends run commands"},
}

type pkg struct {
	ImportPath string
	Imports    []string
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

func ours(path string) (string, bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

// TestImports_LayerOrder: each package imports only the packages that the table of layers permits.
func TestImports_LayerOrder(t *testing.T) {
	pkgs := list(t)
	if len(pkgs) < 10 {
		t.Fatalf("only %d packages found: the check would prove nothing", len(pkgs))
	}
	for i, l := range layers {
		if first := slices.IndexFunc(layers, func(other layer) bool { return other.pkg == l.pkg }); first < i {
			t.Errorf("package %q is in the table twice", l.pkg)
		}
	}
	for _, p := range pkgs {
		name, _ := ours(p.ImportPath)
		at := slices.IndexFunc(layers, func(l layer) bool { return l.pkg == name })
		if at < 0 {
			t.Errorf("package %q has no place in the table of import directions: give it one, with the reason", name)
			continue
		}
		for _, imported := range layers[at].may {
			if !slices.Contains(p.Imports, module+"/"+imported) {
				t.Errorf("%q does not import %q: remove the permission", name, imported)
			}
		}
		for _, path := range p.Imports {
			if imported, ok := ours(path); ok {
				checkOurs(t, layers[at], imported)
			} else {
				checkOutside(t, name, path)
			}
		}
	}
}

func checkOurs(t *testing.T, from layer, imported string) {
	t.Helper()
	if !slices.Contains(from.may, imported) {
		t.Errorf("%q imports %q: %s", from.pkg, imported, from.why)
	}
	to := slices.IndexFunc(layers, func(l layer) bool { return l.pkg == imported })
	if to >= 0 && layers[to].test && !from.test {
		t.Errorf("%q imports %q, which is for tests", from.pkg, imported)
	}
}

func checkOutside(t *testing.T, name, path string) {
	t.Helper()
	for _, o := range outside {
		if !strings.HasPrefix(path+"/", o.prefix) && !strings.HasPrefix(path, o.prefix) {
			continue
		}
		allowed := slices.ContainsFunc(o.only, func(only string) bool {
			return name == only || strings.HasPrefix(name, only+"/")
		})
		if !allowed {
			t.Errorf("%q imports %q: %s", name, path, o.why)
		}
	}
}
