// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/observe/book"
	"github.com/sluice-proxy/sluice/observe/state"
)

// Finding is one thing that is wrong, and Affected a Service that it is about.
type (
	Finding  = state.Finding
	Affected = state.Affected
)

// ServicesMax bounds the Services that one finding names, so that an answer does not grow with the
// cluster.
const ServicesMax = 10

// bounded sorts the Services by name and drops those beyond the bound.
func bounded(all []Affected) (named []Affected, more int) {
	slices.SortStableFunc(all, func(a, b Affected) int { return cmp.Compare(a.Service, b.Service) })
	n := min(len(all), ServicesMax)
	return all[:n:n], len(all) - n
}

// serviceFindings returns one finding about the Services, or none if there are none. The problem is
// a format with their number as its argument.
func serviceFindings(kind Kind, problem string, all []Affected) []Finding {
	if len(all) == 0 {
		return nil
	}
	f := Finding{Kind: kind, Problem: fmt.Sprintf(problem, len(all))}
	for i := range all {
		f.Since = dataplane.Earliest(f.Since, all[i].Since)
	}
	f.Services, f.More = bounded(all)
	return []Finding{f}
}

// Kind names something that can be wrong. docs/health.md has a row for each.
type Kind = string

// The kinds, the gravest first.
const (
	NodeNotEligible Kind = "node-not-eligible" // the Node is unknown, deleted, being deleted, or about to be
	Waiting         Kind = "waiting"           // another proxy serves this node; this one is on standby
	StopHangs       Kind = "stop-hangs"        // the shutdown of the proxy takes too long
	FirstWriteHeld  Kind = "first-write-held"  // the proxy has written no rules since its start
	RulesMissing    Kind = "rules-missing"     // the kernel has no rules that serve a family
	NodeAtFault     Kind = "node-at-fault"     // the kernel rejects rules that belong to no Service
	WriteFailing    Kind = "write-failing"     // writes fail, and no single Service is to blame
	BatchStuck      Kind = "batch-stuck"       // a change is pending although no write failed
	FamilyNotServed Kind = "family-not-served" // the Node has an InternalIP of a family that this process does not serve
	APIStale        Kind = "api-stale"         // the API server cannot be read, or is silent
	// ManifestRejected: some manifest files are invalid, and their last valid content remains applied.
	ManifestRejected Kind = "manifest-rejected"
	NoLock           Kind = "no-lock"       // this proxy serves without the lock that keeps a second proxy on standby
	AddressTaken     Kind = "address-taken" // another process listens on an address of this proxy
	AuditFailing     Kind = "audit-failing" // the kernel's rules cannot be read back
	Drift            Kind = "drift"         // another process changed this proxy's rules
	// NodeSettings: kernel settings, or chains of other programs, keep packets from endpoints.
	NodeSettings Kind = "node-settings"
	Dataplane    Kind = "dataplane" // packets do not arrive although the rules are correct
	// Quarantined: the kernel rejects objects of these Services, or writes of these objects fail. Node
	// ports on localhost are such objects, too.
	Quarantined          Kind = book.Quarantined
	ConntrackFull        Kind = "conntrack-full"        // the connection table is nearly full
	ConntrackDrops       Kind = "conntrack-drops"       // packets got no entry in the connection table and were dropped
	ConntrackFilling     Kind = "conntrack-filling"     // the connection table is filling
	ConfigurationPending Kind = "configuration-pending" // the changed configuration file is not applied (reload: off)
	NotOffloaded         Kind = "not-offloaded"         // connections are not offloaded, contrary to nftables.offload
	TooLarge             Kind = book.TooLarge           // these Services exceed the object limit
	Shadowed             Kind = book.Shadowed           // other Services own addresses that these Services request
	Parked               Kind = book.Parked             // the actors of these Services keep failing
	Stuck                Kind = book.Stuck              // the actors of these Services hung and were replaced
)

// guide lists the kinds in their order, with their meaning and advice. ofDomain is set if each finding
// of the kind is about one domain.
var guide = []struct {
	kind            Kind
	ofDomain        bool
	meaning, advice string
}{
	{NodeNotEligible, false, "the Node is unknown, deleted or being deleted, or carries the autoscaler's taint",
		"No action is needed if the node is being removed. Otherwise, check the Node object " +
			"(kubectl get node NAME -o yaml), remove the taint ToBeDeletedByClusterAutoscaler, and " +
			"verify --hostname-override."},
	{Waiting, false, "another proxy serves this node; this process is on standby",
		"No action is needed during a takeover: this process serves when the other one exits. " +
			"Otherwise, stop one of the two proxies."},
	{StopHangs, false, "shutdown takes too long",
		"Restart this process; its rules remain. Report the cause from the log."},
	{FirstWriteHeld, true, "no rules were written since startup",
		"The rules of the previous process remain. If there is an api-stale finding, fix it " +
			"first. Otherwise, look for failing actors in the log."},
	{RulesMissing, true, "the kernel has no rules of this family that serve",
		"No Service of this family works on this node. Find out who removed the rules (sluice get events), or who owns the " +
			"table: nft list ruleset shows the flag owner and the name of the program. End that program. Sluice writes the " +
			"rules as soon as the kernel accepts them."},
	{NodeAtFault, true, "the kernel rejects node-wide rules",
		"The kernel lacks a required feature, or another process removed an object that the " +
			"rules depend on. Check the error and the loaded kernel modules, or select " +
			"another mode. Sluice keeps retrying."},
	{WriteFailing, true, "writes fail, and no single Service is the cause",
		"Read the error: a lock held by another process, no memory, a missing kernel module or " +
			"privilege. Existing rules remain, and Sluice keeps retrying."},
	{BatchStuck, true, "a change is pending although no write failed",
		"A write takes too long or did not start. Look for a hung iptables-restore, a held " +
			"/run/xtables.lock, and high load. If it lasts, restart this process; its rules remain."},
	{FamilyNotServed, false, "the Node has an InternalIP of a family that this process does not serve",
		"Services of this family do not work on this node, or keep outdated rules of a previous process: Sluice does not " +
			"touch them. Correct the cause and restart this process, or choose another mode (--proxy-mode). Without such " +
			"Services, remove the address from the Node."},
	{APIStale, false, "the API server cannot be read, or is silent",
		"The last known state remains applied; changes are not seen. Check the network path to the " +
			"API server, and whether the credentials may list and watch the resource."},
	{ManifestRejected, false, "manifests are invalid; their last valid content remains applied",
		"Correct the files; the log lists every problem with its line. Sluice reads changed files " +
			"immediately."},
	{NoLock, false, "this proxy runs without the lock that keeps a second proxy on standby",
		"Services are served. Make sure that no second Sluice runs. If another process holds the " +
			"lock, stop that process; Sluice then acquires it. Otherwise, fix the error and restart " +
			"Sluice."},
	{AddressTaken, false, "another process listens on an address of this proxy",
		"Probes and scrapes of this address reach the other process. Stop it, or configure " +
			"another address (healthzBindAddress, metricsBindAddress). Sluice keeps retrying."},
	{AuditFailing, true, "the kernel's rules cannot be read",
		"Changes are still written, but damage by other processes is not detected. Read the " +
			"error. Sluice keeps retrying."},
	{Drift, true, "another process changed this proxy's rules",
		"Find the process and configure it to leave Sluice's tables alone: a firewall manager, " +
			"nft flush ruleset, or kube-proxy. Sluice restores the rules."},
	{NodeSettings, false, "kernel settings or another program's chains keep packets from endpoints",
		"Correct the setting as the finding says, also where the node sets it at boot. Sluice looks every 10 s. It restores only the " +
			"settings that its mode needs (route_localnet, those of IPVS), and only in the running kernel."},
	{Dataplane, false, "packets do not arrive where the rules send them",
		"Services may be unreachable from this node. Find the rule that drops or redirects the packets with sluice " +
			"trace and the addresses in the finding: it is usually in a table of another process. If the node cannot " +
			"connect to itself, check the loopback interface and the connection table (sluice status)."},
	{Quarantined, true, "rules of these Services are rejected or cannot be written",
		"These Services keep their previous rules; other Services are not affected. Fix the " +
			"Service according to the reason. Sluice retries when the Service changes and after " +
			"each audit."},
	{ConntrackFull, false, "more than 95% of the kernel's connection table is used",
		"At 100%, the node drops new connections of all processes. Stop the clients that hold most entries, or raise " +
			"conntrack.maxPerCore; the finding names Services and clients."},
	{ConntrackDrops, false, "the kernel dropped packets in the last 5 min because they got no entry in its connection table",
		"If the table is nearly full, proceed as for conntrack-full. Otherwise, packets of one connection raced " +
			"(sluice_conntrack_insert_failed_total), usually DNS queries from one UDP socket, and the client repeats them."},
	{ConntrackFilling, false, "more than 80% of the kernel's connection table is used",
		"Find out why the named Services and clients hold so many entries, or raise conntrack.maxPerCore before the " +
			"table is full."},
	{ConfigurationPending, false, "the configuration file has changed and is not applied",
		"This node keeps its configuration, because reload is off. A restart of the proxy applies the file."},
	{NotOffloaded, false, "connections to Services are not offloaded on this node (nftables.offload)",
		"Services work, at the usual cost per packet. Read the reason: use nftables mode and a kernel with " +
			"flowtables, or set nftables.offload to off."},
	{TooLarge, false, "these Services exceed the object limit",
		"Some of their frontends are left out, external IPs first; the others are up to date. Reduce their external " +
			"IPs, ports or endpoints, or raise actors.objectsMax."},
	{Shadowed, false, "other Services own addresses and ports that these Services request",
		"Connections to these addresses reach the other Service. Change the ClusterIP, external " +
			"IP, load balancer IP or node port of one of the two, or delete it."},
	{Parked, false, "the actors of these Services failed repeatedly",
		"They keep their previous rules. Report the stack trace in the log. Sluice retries when " +
			"the Service changes and every five minutes."},
	{Stuck, false, "the actors of these Services hung and were replaced",
		"A new actor serves each of them. Report the stack trace in the log. A restart removes " +
			"the hung goroutines."},
}

// Kinds lists all kinds, the gravest first.
func Kinds() []Kind {
	kinds := make([]Kind, len(guide))
	for i := range guide {
		kinds[i] = guide[i].kind
	}
	return kinds
}

// rank returns the position of a kind in the guide, or -1.
func rank(k Kind) int {
	for i := range guide {
		if guide[i].kind == k {
			return i
		}
	}
	return -1
}

// Meaning describes the condition; empty for an unknown kind.
func Meaning(k Kind) string {
	if i := rank(k); i >= 0 {
		return guide[i].meaning
	}
	return ""
}

// Advice returns what an operator can do; empty for an unknown kind.
func Advice(k Kind) string {
	if i := rank(k); i >= 0 {
		return guide[i].advice
	}
	return ""
}

// ofDomain reports whether findings of a kind are about one domain each.
func ofDomain(k Kind) bool {
	i := rank(k)
	return i >= 0 && guide[i].ofDomain
}

// Tally is the number of things that one kind of finding concerns, for a gauge.
type Tally struct {
	Kind Kind
	// Domain is empty for a kind about the whole node or an API resource.
	Domain string
	// Count is 0 if there is no such finding. Otherwise it is the number of Services or API
	// resources affected, or 1 for a finding that has neither.
	Count int
}

// Tallies counts the findings of Report. It lists every kind, found or not, and those of domains once
// per domain, so the length of the list is constant and does not grow with the cluster.
func (m *Monitor) Tallies() []Tally {
	in := m.inputs()
	type slot struct {
		kind   Kind
		domain string
	}
	counts := map[slot]int{}
	for _, f := range in.findings() {
		at := slot{kind: f.Kind}
		if ofDomain(f.Kind) {
			at.domain = f.About
		}
		counts[at] += max(1, len(f.Services)+f.More, f.Resources)
	}
	var all []Tally
	for _, kind := range Kinds() {
		if !ofDomain(kind) {
			all = append(all, Tally{kind, "", counts[slot{kind: kind}]})
			continue
		}
		for i := range in.domains {
			domain := in.domains[i].Status.Domain
			all = append(all, Tally{kind, domain, counts[slot{kind, domain}]})
		}
	}
	return all
}
