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
	// About is the domain or the API resource; empty for the whole node.
	About string `json:"about,omitempty"`
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
	FirstWriteHeld  Kind = "first-write-held"  // nothing has been written since the start
	NodeAtFault     Kind = "node-at-fault"     // the kernel rejects rules that belong to no Service
	WriteFailing    Kind = "write-failing"     // writes fail, and no single Service is to blame
	BatchStuck      Kind = "batch-stuck"       // a change waits although no write has failed
	APIStale        Kind = "api-stale"         // the API server cannot be read, or is silent
	Rival           Kind = "rival"             // another proxy writes rules on this node
	AddressTaken    Kind = "address-taken"     // another program has an address of this one
	AuditFailing    Kind = "audit-failing"     // the kernel's rules cannot be read back
	Drift           Kind = "drift"             // another program has changed our rules
	// Quarantined: the kernel rejects something that these Services want. That includes node ports
	// on localhost.
	Quarantined Kind = "quarantined"
	Parked      Kind = "parked"  // the actors of these Services keep failing
	Stuck       Kind = "stuck"   // the actors of these Services hung and have been replaced
	Refused     Kind = "refused" // there was no room for these Services
)

// guide lists the kinds in their order, whether their findings are about one domain each, and what
// a person can do.
var guide = []struct {
	kind     Kind
	ofDomain bool
	advice   string
}{
	{NodeNotEligible, false,
		"Nothing, if the node is meant to go. Otherwise run kubectl get node NAME -o yaml, " +
			"remove the taint ToBeDeletedByClusterAutoscaler, and check that the node name is " +
			"right (--hostname-override)."},
	{Waiting, false,
		"Nothing, while one proxy takes over from another: this one serves as soon as the " +
			"other exits. If the other is meant to stay, this node has two proxies: stop one of " +
			"them."},
	{FirstWriteHeld, true,
		"The rules of the previous run stay in force. If the API is stale, fix that first; " +
			"otherwise look in the log for actors that fail."},
	{NodeAtFault, true,
		"The kernel lacks something that every rule needs, or another program has removed " +
			"what our rules refer to. Read the error, check the kernel's modules, or try the " +
			"other --proxy-mode. Sluice retries."},
	{WriteFailing, true,
		"Read the error: a lock that another program holds, no memory, a missing module or " +
			"privilege. Sluice retries, and what is in the kernel stays."},
	{BatchStuck, true,
		"A write takes too long or has not begun. Look for a hung iptables or nft, a held " +
			"/run/xtables.lock, and the load of the node. If it lasts, restart this process; the " +
			"rules stay in force meanwhile."},
	{APIStale, false,
		"The last known state stays in force; changes do not arrive. Check that this node can " +
			"reach the API server, and that the credentials may list and watch the resource."},
	{Rival, false,
		"Two proxies undo each other's work. Stop one of them: kubectl -n kube-system delete " +
			"daemonset kube-proxy, or the static pod or unit that starts it; k3s has " +
			"--disable-kube-proxy."},
	{AddressTaken, false,
		"Probes and scrapes of this address reach the program that has it. Stop that program, " +
			"or configure another address (healthzBindAddress, metricsBindAddress). Sluice " +
			"retries."},
	{AuditFailing, true,
		"Changes are still written, but damage by other programs goes unnoticed. Read the " +
			"error. Sluice retries."},
	{Drift, true,
		"Another program edits our tables: a firewall manager that reloads, nft flush " +
			"ruleset, a second proxy. Find it and configure it to leave them alone. Sluice has " +
			"restored what differed."},
	{Quarantined, true,
		"What they had before stays, and other Services are served. Compare the reason with " +
			"the Service. Sluice retries when the Service changes and after audits."},
	{Parked, false,
		"Their last rules stay. The log has the failure with its stack: report it. Sluice " +
			"retries when the Service changes and every five minutes."},
	{Stuck, false,
		"A replacement serves them. The goroutine that hung is lost until it returns or the " +
			"process restarts. The log has its stack: report it."},
	{Refused, false,
		"They are not served. Raise the limit on the number of Services, or remove some. " +
			"Sluice retries when one goes."},
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
		counts[at] += max(1, len(f.Services)+f.More)
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
