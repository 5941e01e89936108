package client

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

// Report is the outcome of a Wait, as the commands print it.
type Report struct {
	Endpoint string       `json:"endpoint"`
	Gone     bool         `json:"gone"`
	Nodes    []NodeReport `json:"nodes"`
}

// NodeReport is the outcome on one node.
type NodeReport struct {
	Node string `json:"node"`
	// State is "gone", "in use", "unknown", "unreachable" or "ignored".
	State   string  `json:"state"`
	Seconds float64 `json:"seconds"`
	Detail  string  `json:"detail,omitempty"`
	done    bool
}

// NewReport returns a report of what is known of an endpoint.
func NewReport(at netip.AddrPort, results []Result) *Report {
	report := &Report{Endpoint: inspect.EndpointText(at), Gone: true}
	for i := range results {
		r := &results[i]
		node := NodeReport{Node: r.Node, Seconds: r.After.Round(time.Millisecond).Seconds(), done: r.Done()}
		switch {
		case r.Gone:
			node.State = "gone"
		case r.Ignored:
			node.State, node.Detail = "ignored", r.Err.Error()
		case r.Err != nil:
			node.State, node.Detail = "unreachable", r.Err.Error()
			if state, detail := answered(r); r.Answered {
				node.Detail += strings.TrimSuffix("; the last answer: "+state+", "+detail, ", ")
			}
		default:
			node.State, node.Detail = answered(r)
		}
		report.Gone = report.Gone && node.done
		report.Nodes = append(report.Nodes, node)
	}
	return report
}

// answered describes the last answer of a node that sends to the endpoint, or may do so.
func answered(r *Result) (state, detail string) {
	if r.Reason != "" && len(r.Services) == 0 {
		return "unknown", r.Reason
	}
	return "in use", senders(r.Services)
}

// senders names the Services that send to an endpoint.
func senders(all []inspect.Sender) string {
	var texts []string
	for _, s := range all {
		texts = append(texts, fmt.Sprintf("%s (%s, %s)", s.Service, s.Domain, s.State))
	}
	return strings.Join(texts, ", ")
}

// Err returns an error unless the endpoint is gone everywhere.
func (r *Report) Err(after time.Duration) error {
	left := 0
	for i := range r.Nodes {
		if !r.Nodes[i].done {
			left++
		}
	}
	if left == 0 {
		return nil
	}
	return fmt.Errorf("%s is not known to be out on %d of %s after %v", r.Endpoint, left, plural.Of(len(r.Nodes), "node"), after)
}

// Print prints a table.
func (r *Report) Print(to *terminal.Page) {
	t := terminal.NewTable(to, "NODE", "STATE", "AFTER", "DETAIL")
	for _, n := range r.Nodes {
		after := "0s"
		if n.Seconds > 0 {
			after = inspect.Micros(int64(n.Seconds * 1e6))
		}
		t.Row(n.Node, n.State, after, cmp.Or(n.Detail, "-"))
	}
	t.End()
}

// Print waits until the endpoint is gone everywhere, or the context ends after a time, and prints the results.
func (p *Proxies) Print(ctx context.Context, to io.Writer, by *inspect.Output, at netip.AddrPort, after time.Duration) error {
	if len(p.Targets) > 1 {
		p.Changed = progress(by.Notes, len(p.Targets))
	}
	report := NewReport(at, p.Wait(ctx, at))
	if err := by.Print(to, report); err != nil {
		return err
	}
	return report.Err(after)
}

// progress returns a function for Proxies.Changed that prints a line each second in which something changed.
func progress(to io.Writer, nodes int) func([]Result) {
	next := time.Now().Add(time.Second)
	return func(all []Result) {
		if time.Now().Before(next) {
			return
		}
		next = time.Now().Add(time.Second)
		out := 0
		for i := range all {
			if all[i].Done() {
				out++
			}
		}
		fmt.Fprintf(to, "out on %d of %s\n", out, plural.Of(nodes, "node"))
	}
}
