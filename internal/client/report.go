// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
	// failures counts the last failures in a row. last is the last answer; nil before the first.
	failures int
	last     *inspect.Gone
}

const (
	isGone        = "gone"
	isUnreachable = "unreachable"
	isIgnored     = "ignored"
)

// done reports whether the node is not queried again.
func (n *NodeReport) done() bool { return n.State == isGone || n.State == isIgnored }

// stateOf describes an answer.
func stateOf(a *inspect.Gone) (state, detail string) {
	switch {
	case a.Gone:
		return isGone, ""
	case a.Reason != "" && len(a.Services) == 0:
		return "unknown", a.Reason
	default:
		return "in use", senders(a.Services)
	}
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
		if !r.Nodes[i].done() {
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

// WaitGone waits until an endpoint is gone at all proxies, or for a time, and prints the results.
func WaitGone(cmd *cobra.Command, by *inspect.Output, endpoint string, most time.Duration,
	find func(context.Context) (Proxies, error)) error {
	at, err := inspect.ParseEndpoint(endpoint)
	if err != nil {
		return inspect.Misused("--gone: %w", err)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), most)
	defer cancel()
	ctx, give := context.WithCancelCause(ctx)
	defer give(nil)
	p, err := find(ctx)
	if err != nil {
		return err
	}
	switch t := &p.Targets[0]; {
	case len(p.Targets) > 1:
		p.Changed = progress(by.Notes, len(p.Targets))
	case t.Client != nil:
		t.gone = unlessHung(t.Client, give)
	}
	report := p.Wait(ctx, at)
	if err := context.Cause(ctx); errors.As(err, new(*inspect.Silent)) {
		return err
	}
	if err := by.Print(cmd.OutOrStdout(), report); err != nil {
		return err
	}
	return report.Err(most)
}

// hung reports whether a proxy did not answer a query, although the command has time left.
func hung(ctx context.Context, err error) bool {
	return ctx.Err() == nil && errors.As(err, new(*inspect.Silent))
}

// unlessHung returns a function that queries a proxy, and calls give if the proxy hangs. A search for an endpoint may
// take longer than the client waits, so a short query decides whether the proxy hangs.
func unlessHung(c *inspect.Client, give context.CancelCauseFunc) func(context.Context, inspect.GoneQuery) (*inspect.Gone, error) {
	return func(ctx context.Context, q inspect.GoneQuery) (*inspect.Gone, error) {
		made, err := c.Gone(ctx, q)
		if hung(ctx, err) {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if _, other := c.Events(short, ""); hung(ctx, other) {
				give(err)
			}
		}
		return made, err
	}
}

// progress returns a function for Proxies.Changed that prints a line each second in which something changed.
func progress(to io.Writer, nodes int) func([]NodeReport) {
	next := time.Now().Add(time.Second)
	return func(all []NodeReport) {
		if time.Now().Before(next) {
			return
		}
		next = time.Now().Add(time.Second)
		out := 0
		for i := range all {
			if all[i].done() {
				out++
			}
		}
		fmt.Fprintf(to, "out on %d of %s\n", out, plural.Of(nodes, "node"))
	}
}
