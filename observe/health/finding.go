package health

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-proxy/sluice/dataplane"
)

// Finding is one thing that is wrong.
type Finding struct {
	Kind Kind `json:"kind"`
	// About is the domain, or the API resources separated by ", "; empty for the whole node.
	About string `json:"about,omitempty"`
	// resources is the number of API resources that About names.
	resources int
	// Since is when it began, zero if unknown.
	Since time.Time `json:"since,omitzero"`
	// Unhealthy means that this causes an answer of 503.
	Unhealthy bool `json:"unhealthy"`
	// Problem says in one line what is wrong.
	Problem string `json:"problem"`
	// Advice says what a person can do. A report has it for each finding.
	Advice string `json:"advice"`
	// Services are those affected, sorted by name, at most ServicesMax; More counts the others.
	Services []Affected `json:"services,omitempty"`
	More     int        `json:"more,omitempty"`
}

// Affected is one Service that a finding is about.
type Affected struct {
	// Service is "namespace/name".
	Service string    `json:"service"`
	Since   time.Time `json:"since,omitzero"`
	// Reason is one line; it may be empty.
	Reason string `json:"reason,omitempty"`
}

// ServicesMax bounds the Services that one finding names, so that an answer does not grow with the
// cluster.
const ServicesMax = 10

// public returns what a client of another host may know: neither command lines nor errors of the
// kernel and of the API server, which may contain anything.
func (f Finding) public() Finding {
	f.Problem = "its details are shown to clients on the node only"
	if i := f.Kind.rank(); i >= 0 {
		f.Problem = guide[i].meaning + "; " + f.Problem
	}
	f.Services = slices.Clone(f.Services) // the report may be shared
	for i := range f.Services {
		f.Services[i].Reason = ""
	}
	return f
}

// bounded sorts the Services by name and drops those beyond the bound.
func bounded(all []Affected) (named []Affected, more int) {
	slices.SortStableFunc(all, func(a, b Affected) int { return cmp.Compare(a.Service, b.Service) })
	n := min(len(all), ServicesMax)
	return all[:n:n], len(all) - n
}

// lineMax bounds the length of a foreign text, in bytes.
const lineMax = 300

// oneLine fits a foreign text into one line.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) <= lineMax {
		return text
	}
	end := lineMax
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// serviceFindings returns one finding about the Services, or none if there are none. The problem is
// a format with their number as its argument.
func serviceFindings(kind Kind, problem string, services iter.Seq[Affected]) []Finding {
	all := slices.Collect(services)
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
type Kind string

// The kinds, the gravest first.
const (
	NodeNotEligible Kind = "node-not-eligible" // the Node is unknown, being deleted, or about to be
	Waiting         Kind = "waiting"           // another proxy serves this node, until it exits
	StopHangs       Kind = "stop-hangs"        // the proxy was told to stop long ago, and has not stopped
	FirstWriteHeld  Kind = "first-write-held"  // nothing has been written since the start
	NodeAtFault     Kind = "node-at-fault"     // the kernel rejects rules that belong to no Service
	WriteFailing    Kind = "write-failing"     // writes fail, and no single Service is to blame
	BatchStuck      Kind = "batch-stuck"       // a change waits although no write has failed
	APIStale        Kind = "api-stale"         // the API server cannot be read, or is silent
	// ManifestRejected: the newest content of some files is not served.
	ManifestRejected Kind = "manifest-rejected"
	NoLock           Kind = "no-lock"       // serves without the lock: a second proxy would not be noticed
	AddressTaken     Kind = "address-taken" // another program has an address of this one
	AuditFailing     Kind = "audit-failing" // the kernel's rules cannot be read back
	Drift            Kind = "drift"         // another program has changed our rules
	// Quarantined: the kernel rejects something that these Services want, or it does not land. That
	// includes node ports on localhost.
	Quarantined Kind = "quarantined"
	TooLarge    Kind = "too-large" // these Services ask for too many objects
	Shadowed    Kind = "shadowed"  // other Services serve addresses that these Services want
	Parked      Kind = "parked"    // the actors of these Services keep failing
	Stuck       Kind = "stuck"     // the actors of these Services hung and have been replaced
)

// guide lists the kinds in their order, whether their findings are about one domain each, what they
// mean and what a person can do.
var guide = []struct {
	kind            Kind
	ofDomain        bool
	meaning, advice string
}{
	{NodeNotEligible, false, "the Node is unknown, is being deleted, or is about to be",
		"Nothing, if the node is meant to go. Otherwise run kubectl get node NAME -o yaml, " +
			"remove the taint ToBeDeletedByClusterAutoscaler, and check that the node name is " +
			"right (--hostname-override)."},
	{Waiting, false, "another proxy serves this node, and this one waits until it exits",
		"Nothing, while one proxy takes over from another: this one serves as soon as the " +
			"other exits. If the other is meant to stay, this node has two proxies: stop one of " +
			"them."},
	{StopHangs, false, "stopping takes too long",
		"Restart this process; the rules stay in force meanwhile. The log names what did not stop: " +
			"report it."},
	{FirstWriteHeld, true, "nothing was written since the start",
		"The rules of the previous run stay in force. If the API is stale, fix that first; " +
			"otherwise look in the log for actors that fail."},
	{NodeAtFault, true, "the kernel rejects rules that belong to no Service",
		"The kernel lacks something that every rule needs, or another program has removed " +
			"what our rules refer to. Read the error, check the kernel's modules, or try the " +
			"other --proxy-mode. Sluice retries."},
	{WriteFailing, true, "writes fail, and no single Service is to blame",
		"Read the error: a lock that another program holds, no memory, a missing module or " +
			"privilege. Sluice retries, and what is in the kernel stays."},
	{BatchStuck, true, "a change waits although no write failed",
		"A write takes too long or has not begun. Look for a hung iptables or nft, a held " +
			"/run/xtables.lock, and the load of the node. If it lasts, restart this process; the " +
			"rules stay in force meanwhile."},
	{APIStale, false, "the API server cannot be read, or is silent",
		"The last known state stays in force; changes do not arrive. Check that this node can " +
			"reach the API server, and that the credentials may list and watch the resource."},
	{ManifestRejected, false, "manifests are rejected, and their last good state is served",
		"The log names every problem with its line. Correct the files; they are read again at once."},
	{NoLock, false, "this proxy serves without the lock that keeps two proxies apart",
		"Services are served, but a second Sluice would not wait. Make sure that none runs. If " +
			"another program holds the lock, stop that program; Sluice then takes the lock. " +
			"Otherwise fix what the error names, and restart Sluice."},
	{AddressTaken, false, "another program has an address of this proxy",
		"Probes and scrapes of this address reach the program that has it. Stop that program, " +
			"or configure another address (healthzBindAddress, metricsBindAddress). Sluice " +
			"retries."},
	{AuditFailing, true, "the kernel's rules cannot be read back",
		"Changes are still written, but damage by other programs goes unnoticed. Read the " +
			"error. Sluice retries."},
	{Drift, true, "another program changed this proxy's rules",
		"Another program edits our tables: a firewall manager that reloads, nft flush " +
			"ruleset, kube-proxy. Find it and configure it to leave them alone. Sluice has " +
			"restored what differed."},
	{Quarantined, true, "something that these Services want is rejected",
		"What they had before stays, and other Services are served. Compare the reason with " +
			"the Service. Sluice retries when the Service changes and after audits."},
	{TooLarge, false, "these Services ask for too many objects",
		"What they had before stays, and other Services are served. Reduce their external IPs, " +
			"ports or endpoints, or raise actors.objectsMax."},
	{Shadowed, false, "other Services serve addresses and ports that these Services want",
		"Connections to these addresses reach the other Service. Give one of the two another " +
			"cluster IP, external IP, load balancer IP or node port, or delete it."},
	{Parked, false, "the actors of these Services keep failing",
		"Their last rules stay. The log has the failure with its stack: report it. Sluice " +
			"retries when the Service changes and every five minutes."},
	{Stuck, false, "the actors of these Services hung and were replaced",
		"A replacement serves them. The goroutine that hung is lost until it returns or the " +
			"process restarts. The log has its stack: report it."},
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
func (k Kind) rank() int {
	for i := range guide {
		if guide[i].kind == k {
			return i
		}
	}
	return -1
}

// Advice says what a person can do; empty for an unknown kind.
func (k Kind) Advice() string {
	if i := k.rank(); i >= 0 {
		return guide[i].advice
	}
	return ""
}

// ofDomain reports whether findings of a kind are about one domain each.
func (k Kind) ofDomain() bool {
	i := k.rank()
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

// Tallies counts what Report finds. It lists every kind, found or not, and those of domains once
// per domain. So the list is always of the same length, and does not grow with the cluster.
func (m *Monitor) Tallies() []Tally {
	in := m.inputs()
	type slot struct {
		kind   Kind
		domain string
	}
	counts := map[slot]int{}
	for _, f := range in.findings() {
		at := slot{kind: f.Kind}
		if f.Kind.ofDomain() {
			at.domain = f.About
		}
		counts[at] += max(1, len(f.Services)+f.More, f.resources)
	}
	var all []Tally
	for _, kind := range Kinds() {
		if !kind.ofDomain() {
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
