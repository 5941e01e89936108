// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

func (f *flags) statusCommand() *cobra.Command {
	problems := false
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the proxies of all nodes",
		Long: `Show one line about each node: health, mode, version, Services, pending and held Services,
the delay of endpoint changes, and findings. Nodes with problems come first, unhealthy ones
before the others.`,
		Example: "  kubectl sluice status\n  kubectl sluice status --problems -o wide",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.show(cmd, func(c *cluster) (report, error) { return c.status(cmd.Context(), problems) })
		},
	}
	client.BindSort(cmd, &f.Output)
	cmd.Flags().BoolVar(&problems, "problems", false, "leave out nodes without problems")
	return cmd
}

// statusReport is the answer of kubectl sluice status.
type statusReport struct {
	reach
	Nodes []nodeStatus `json:"nodes"`
	// Versions and Modes count nodes.
	Versions map[string]int `json:"versions"`
	Modes    map[string]int `json:"modes"`
	// Configurations counts nodes by the hash of their configuration. Differing are nodes without the most common hash.
	Configurations map[string]int `json:"configurations"`
	Differing      []string       `json:"differing"`
	now            time.Time
}

// nodeStatus is one line.
type nodeStatus struct {
	Node string `json:"node"`
	// Health is starting, healthy, degraded or unhealthy; empty from a proxy of an older release. Healthy is false if it
	// is unhealthy.
	Health   string    `json:"health"`
	Zone     string    `json:"zone,omitempty"`
	Mode     string    `json:"mode"`
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	Healthy  bool      `json:"healthy"`
	Services int       `json:"services"`
	// Pending and Quarantined count the pending and the held Services. An older proxy counts them by domain only; then
	// they are the largest numbers of a domain, because a Service is in several.
	Pending     int `json:"pending"`
	Quarantined int `json:"quarantined"`
	// PendingSeconds is how long the oldest change has waited.
	PendingSeconds float64 `json:"pendingSeconds"`
	// LagP99Micros is the delay of endpoint changes from their trigger to the node, ApplyP99Micros that of changes from
	// their receipt to the kernel, in the last 15 minutes.
	LagP99Micros   int64    `json:"lagP99Micros"`
	ApplyP99Micros int64    `json:"applyP99Micros"`
	Findings       []string `json:"findings"`
	// ConfigurationHash is the same on nodes with the same configuration.
	ConfigurationHash string `json:"configurationHash"`
	Pod               string `json:"pod"`
	from              *inspect.Status
}

// status asks all nodes.
func (c *cluster) status(ctx context.Context, problems bool) (*statusReport, error) {
	answered, reached, err := askAll(ctx, c, (*inspect.Client).Status)
	if err != nil {
		return nil, err
	}
	report := &statusReport{reach: reached, Nodes: []nodeStatus{}, Versions: map[string]int{}, Modes: map[string]int{},
		Configurations: map[string]int{}, Differing: []string{}, now: time.Now()}
	for _, a := range answered {
		line := lineOf(a.Node, a.Pod, a.got)
		report.Versions[line.Version]++
		report.Modes[line.Mode]++
		report.Configurations[line.hash()]++
		if !problems || line.troubled() {
			report.Nodes = append(report.Nodes, line)
		}
	}
	report.compare(answered)
	slices.SortStableFunc(report.Nodes, func(a, b nodeStatus) int { return cmp.Compare(b.gravity(), a.gravity()) })
	return report, nil
}

// compare finds the nodes whose configuration is not that of most nodes.
func (r *statusReport) compare(all []answer[inspect.Status]) {
	most := ""
	for _, hash := range slices.Sorted(maps.Keys(r.Configurations)) {
		if most == "" || r.Configurations[hash] > r.Configurations[most] {
			most = hash
		}
	}
	for _, a := range all {
		if cmp.Or(a.got.ConfigurationHash, unknownHash) != most {
			r.Differing = append(r.Differing, a.Node)
		}
	}
}

// unknownHash stands for the hash of a proxy of a release that reports none.
const unknownHash = "unknown"

func (n *nodeStatus) hash() string { return cmp.Or(n.ConfigurationHash, unknownHash) }

func lineOf(node, pod string, s *inspect.Status) nodeStatus {
	line := nodeStatus{
		Node: node, Pod: pod, ConfigurationHash: s.ConfigurationHash, from: s, Zone: s.Zone, Mode: s.Mode, Version: s.Version, Started: s.Started, Health: s.Health, Healthy: s.Healthy && s.Health != unhealthy, Services: s.Services,
		LagP99Micros: s.Activity.Lag.P99Micros, ApplyP99Micros: s.Activity.Changes.P99Micros, Findings: []string{},
	}
	for i := range s.Domains {
		d := &s.Domains[i]
		line.Pending, line.Quarantined = max(line.Pending, d.Pending), max(line.Quarantined, d.Held)
		if !d.OldestPending.IsZero() { // by the clock of the node
			line.PendingSeconds = max(line.PendingSeconds, s.Now.Sub(d.OldestPending).Seconds())
		}
	}
	if s.States != nil {
		line.Pending, line.Quarantined = s.States.Pending, s.States.Held
	}
	for i := range s.Findings {
		if kind := s.Findings[i].Kind; !slices.Contains(line.Findings, kind) {
			line.Findings = append(line.Findings, kind)
		}
	}
	return line
}

// Values of Health.
const unhealthy, starting = "unhealthy", "starting"

func (n *nodeStatus) troubled() bool { return n.gravity() > 1 }

// gravity orders the lines, the largest value first.
func (n *nodeStatus) gravity() int {
	switch {
	case !n.Healthy:
		return 4
	case n.Quarantined > 0:
		return 3
	case len(n.Findings) > 0:
		return 2
	case n.Health == starting:
		return 1
	default:
		return 0
	}
}

// None implements inspect.List: nodes with problems have rows.
func (r *statusReport) None() string {
	return "No problems on " + plural.Of(r.Total-len(r.Silent), "node")
}

// Print implements inspect.Answer.
func (r *statusReport) Print(to *terminal.Page) {
	heads := []string{"NODE", "HEALTH", "MODE", "VERSION", "CONFIG", "UP", "SERVICES", "PENDING", "HELD", "LAG P99"}
	if to.Wide {
		heads = append(heads, "APPLY P99", "OLDEST", "ZONE")
	}
	t := terminal.NewTable(to, append(heads, "FINDINGS")...)
	for i := range r.Nodes {
		n := &r.Nodes[i]
		row := []string{n.Node, cmp.Or(n.Health, "-"), n.Mode, n.Version, n.hash(), inspect.Age(r.now, n.Started), fmt.Sprint(n.Services), fmt.Sprint(n.Pending), fmt.Sprint(n.Quarantined), inspect.KnownMicros(n.LagP99Micros)}
		if to.Wide {
			row = append(row, inspect.KnownMicros(n.ApplyP99Micros), inspect.KnownMicros(int64(n.PendingSeconds*1e6)), n.Zone)
		}
		t.Row(append(row, cmp.Or(strings.Join(n.Findings, ","), "-"))...)
	}
	t.End()
	to.Say("\n%d of %s answered; versions: %s; modes: %s; configurations: %s\n", r.Total-len(r.Silent), plural.Of(r.Total, "node"),
		counts(r.Versions), counts(r.Modes), counts(r.Configurations))
	if n := len(r.Differing); n > 0 {
		more := ""
		if n > silentShown {
			more = fmt.Sprintf(" and %d more (see -o json)", n-silentShown)
		}
		text := fmt.Sprintf("the configuration is not that of most nodes on %s%s", strings.Join(r.Differing[:min(n, silentShown)], ", "), more)
		terminal.NewTable(to).Row(text).End()
	}
	r.printSilent(to)
}

// counts returns names with their numbers.
func counts(all map[string]int) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		texts = append(texts, fmt.Sprintf("%s (%d)", name, all[name]))
	}
	return cmp.Or(strings.Join(texts, ", "), "none")
}
