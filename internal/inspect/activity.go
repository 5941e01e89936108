package inspect

import "time"

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
	// P50Micros and P99Micros are quantiles in microseconds, within a tenth; 0 without a duration.
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
