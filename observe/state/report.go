// SPDX-License-Identifier: Apache-2.0

package state

import (
	"slices"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// Finding is one thing that health finds wrong; see docs/health.md.
type Finding struct {
	// Kind is one of health.Kinds.
	Kind string `json:"kind"`
	// About is the domain, or the API resources separated by ", "; empty for the whole node.
	About string `json:"about,omitempty"`
	// Since is when it began, zero if unknown.
	Since time.Time `json:"since,omitzero"`
	// Unhealthy means that /healthz responds with status 503 because of this finding.
	Unhealthy bool `json:"unhealthy"`
	// Problem describes in one line what is wrong.
	Problem string `json:"problem"`
	// Meaning describes the kind, and Advice what an operator can do. A report has both for each known kind.
	Meaning string `json:"-"`
	Advice  string `json:"advice"`
	// Services are some of those affected, sorted by name, and More counts the others.
	Services []Affected `json:"services,omitempty"`
	More     int        `json:"more,omitempty"`
	// Resources is the number of API resources that About names.
	Resources int `json:"-"`
}

// Hidden replaces a text that not everyone on the network may see: it may contain addresses of clients, command lines,
// or errors of the kernel and of the API server.
const Hidden = "details are shown on the node and to authorized callers only"

// Public returns what everyone on the network may see of a finding.
func (f Finding) Public() Finding {
	f.Problem = Hidden
	if f.Meaning != "" {
		f.Problem = f.Meaning + "; " + Hidden
	}
	f.Services = slices.Clone(f.Services) // the report may be shared
	for i := range f.Services {
		f.Services[i].Reason = ""
	}
	return f
}

// Affected is one Service that a finding is about.
type Affected struct {
	// Service is "namespace/name".
	Service string    `json:"service"`
	Since   time.Time `json:"since,omitzero"`
	// Reason is one line; it may be empty.
	Reason string `json:"reason,omitempty"`
	// Key is the same Service; not in answers.
	Key service.Key `json:"-"`
}

// lineMax bounds the length of a foreign text, in bytes.
const lineMax = 300

// OneLine fits a foreign text into one line.
func OneLine(text string) string {
	return service.Cut(strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " "), lineMax)
}

// OtherChain is a base chain of another program, or a table or chain of iptables-legacy, which has no hook here.
type OtherChain struct {
	Table    string `json:"table"`
	Name     string `json:"name,omitempty"`
	Hook     string `json:"hook,omitempty"`
	Priority int32  `json:"priority"`
	// Text describes it in one phrase.
	Text string `json:"text"`
}

// Offload shows whether established TCP connections to Services bypass netfilter.
type Offload struct {
	// Devices is the number of devices between which connections are offloaded.
	Devices int `json:"devices"`
	// Problem is the reason why connections are not offloaded, or not on all devices; Since is when it began.
	Problem string    `json:"problem,omitempty" terminal:"lines"`
	Since   time.Time `json:"-"`
}

// SelfTest is the result of the last self-test of a family.
type SelfTest struct {
	Family string    `json:"family"`
	At     time.Time `json:"at"`
	Passed bool      `json:"passed"`
	// Micros is the duration of a connection that succeeded.
	Micros int64 `json:"micros,omitempty"`
	// Problem is empty if it passed.
	Problem string `json:"problem,omitempty"`
}

// Conntrack is the use of the kernel's connection table.
type Conntrack struct {
	Entries uint64 `json:"entries"`
	// Limit is 0 without one.
	Limit uint64 `json:"limit"`
	// Dropped counts packets that got no entry, and EarlyDropped entries that were deleted to make room, since the
	// network namespace was created. LastDrop is when either last grew; zero if neither grew since the proxy started.
	Dropped      uint64    `json:"dropped"`
	EarlyDropped uint64    `json:"earlyDropped"`
	LastDrop     time.Time `json:"lastDrop,omitzero"`
}

// Resource is one kind of API object that the proxy follows.
type Resource struct {
	// Name is the plural name, for example "endpointslices".
	Name string `json:"name"`
	// Heard is when the API server last sent anything about it.
	Heard time.Time `json:"heard,omitzero"`
	// FailingSince is zero while requests succeed.
	FailingSince time.Time `json:"failingSince,omitzero"`
	// Error is the last error while FailingSince is set or Absent is true.
	Error string `json:"error,omitempty"`
	// Absent means that the server does not have this resource, which is optional.
	Absent bool `json:"absent,omitempty"`
}

// Actors counts actors by state. Each Service has one; the node's own counts as well.
type Actors struct {
	Running int `json:"running"`
	// Restarting are those that will be started again after a failure.
	Restarting int `json:"restarting"`
	Parked     int `json:"parked"`
	// Abandoned counts the goroutines of actors that hung and have been replaced.
	Abandoned int `json:"abandoned"`
}

// Domain is the state of one part of the kernel, for example "nftables/IPv4".
type Domain struct {
	Name   string `json:"name"`
	Family string `json:"family"`
	// Auxiliary domains have state other than the kernel's rules, for example listening sockets.
	Auxiliary bool `json:"auxiliary,omitempty"`
	// Open is set once the startup gate is open and the first write may start. Missing counts the Services that the
	// gate waits for.
	Open    bool `json:"open"`
	Missing int  `json:"missing,omitempty"`
	// Applied, Pending, Shadowed and Held count Services by their state in this domain; see State. A Service with a
	// failing actor is held in all. Removed Services whose rules remain are pending or held.
	Applied  int `json:"applied"`
	Pending  int `json:"pending"`
	Shadowed int `json:"shadowed"`
	Held     int `json:"quarantined"`
	// Queue counts the fragments that no batch has taken yet.
	Queue int `json:"queue"`
	// OldestPending is when the oldest change that is not applied began to wait.
	OldestPending time.Time `json:"oldestPending,omitzero"`
	// Objects counts the objects that are desired or known in the kernel, and Dirty those that differ.
	Objects int `json:"objects"`
	Dirty   int `json:"dirty"`
	// Batches counts the batches that were written since the start, failed ones included.
	Batches   uint64    `json:"batches"`
	LastWrite time.Time `json:"lastWrite,omitzero"`
	// LastAudit is when the kernel state was last read and compared.
	LastAudit time.Time `json:"lastAudit,omitzero"`
	// Failures counts the failed writes since the last successful one.
	Failures  int    `json:"failures"`
	LastError string `json:"lastError,omitempty" terminal:"lines"`
	// NodeAtFault is set while the kernel rejects rules that belong to no Service.
	NodeAtFault bool `json:"nodeAtFault,omitempty"`
	// Quarantined has the first QuarantinedMax of the Services held.
	Quarantined []Quarantine `json:"quarantine,omitempty"`
}

// QuarantinedMax bounds the Services that a domain lists.
const QuarantinedMax = 100

// Activity is what the proxy did in the last 15 minutes.
type Activity struct {
	// Changes measures each change of a Service from its receipt until it is applied, once per IP family.
	// Changes at startup do not count.
	Changes Recent `json:"changes"`
	// Lag measures endpoint changes from their trigger in the cluster, by the cluster's clock, until their
	// receipt.
	Lag Recent `json:"lag"`
	// LastRepair is nil if no other process changed the rules since startup.
	LastRepair *Repair `json:"lastRepair,omitempty"`
}

// Recent has the durations of the last 15 minutes.
type Recent struct {
	// Counts has their number in each step of StepSeconds, the oldest step first. The last step is not over.
	StepSeconds int   `json:"stepSeconds"`
	Counts      []int `json:"counts"`
	// PerSecond is the rate in the last minute.
	PerSecond float64 `json:"perSecond"`
	// P50Micros and P99Micros are quantiles in microseconds, accurate within a tenth; 0 without a duration.
	P50Micros int64 `json:"p50Micros"`
	P99Micros int64 `json:"p99Micros"`
}

// Repair describes rules that another process changed, and that Sluice restored.
type Repair struct {
	At     time.Time `json:"at"`
	Domain string    `json:"domain"`
	// By is the process; empty if the kernel does not report it.
	By string `json:"by,omitempty"`
	// Objects and Services count what was changed, and Examples describe some of the objects.
	Objects  int      `json:"objects"`
	Services int      `json:"services"`
	Examples []string `json:"examples"`
}

// Event is a report about a Service, or about the node, which has no namespace; see docs/logs.md#events.
type Event struct {
	Time time.Time `json:"time"`
	// Type is Normal or Warning.
	Type      string `json:"type"`
	Reason    string `json:"reason"`
	Namespace string `json:"namespace,omitempty"`
	// About is the kind of the object, Service or Node, and Object its name.
	About  string `json:"about"`
	Object string `json:"object"`
	Note   string `json:"note" terminal:"lines"`
}
