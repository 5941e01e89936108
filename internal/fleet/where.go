// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/internal/terminal"
	"github.com/sluice-proxy/sluice/observe/state"
)

// The states of a Service on a node, in addition to those of package state.
const (
	stateBehind state.State = "behind"  // the node does not know the newest Service and endpoints yet
	stateAbsent state.State = "unknown" // the node does not know the Service
)

func (f *flags) whereCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "where svc/NAME",
		Short: "Show on which nodes a Service is applied, and why not on the others",
		Long: `Show on how many nodes the kernel has the newest rules of a Service. The other nodes are
listed with the reason. A node whose Service or endpoints differ from those of the API server
is behind. The exit status is 0 only if the Service is applied on all nodes.`,
		Example: "  kubectl sluice where svc/web -n shop\n  kubectl sluice where svc/web -n shop -o wide",
		Args:    arguments("svc/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := objectNamed(args[0], inspect.ServiceKinds)
			if err != nil {
				return err
			}
			return f.show(cmd, func(c *cluster) (report, error) { return c.where(cmd.Context(), name) })
		},
	}
}

// whereReport is the answer of kubectl sluice where.
type whereReport struct {
	reach
	Service string      `json:"service"`
	Applied int         `json:"applied"`
	Nodes   []nodeState `json:"nodes"`
}

// nodeState is the state of a Service on a node.
type nodeState struct {
	Node  string      `json:"node"`
	State state.State `json:"state"`
	// Seconds is how long the Service has been in this state; 0 if that is unknown.
	Seconds   float64 `json:"seconds,omitempty"`
	Reason    string  `json:"reason,omitempty"`
	Endpoints int     `json:"endpoints"`
}

// where queries all nodes about a Service. It reads the Service from the API server before and after, because it may
// change in between: a node may have either version. Without the right to read it, nodes that are behind stay unknown.
func (c *cluster) where(ctx context.Context, name string) (*whereReport, error) {
	var newest []string
	read := func() error {
		digest, err := c.digest(ctx, name)
		if err == nil {
			newest = append(newest, digest)
		} else if apierrors.IsForbidden(err) {
			return nil
		}
		return err
	}
	if err := read(); err != nil {
		return nil, err
	}
	answered, reached, err := askAll(ctx, c, func(from *inspect.Client, ctx context.Context) (*inspect.ServiceDetail, error) {
		return from.Brief(ctx, c.namespace, name)
	})
	if err == nil {
		err = read()
	}
	if err != nil {
		return nil, err
	}
	report := &whereReport{reach: reached, Service: c.namespace + "/" + name, Nodes: []nodeState{}}
	if len(newest) == 0 {
		report.Note = strings.TrimSpace(report.Note + "\nnodes that are behind are not known: you may not read the Service or its endpoints")
	}
	for _, a := range answered {
		line := stateOf(a.Node, a.got, newest)
		if line.State == state.Applied {
			report.Applied++
		}
		report.Nodes = append(report.Nodes, line)
	}
	return report, nil
}

// stateOf returns the state of a Service on a node; detail is nil if the node does not have the Service.
func stateOf(node string, detail *inspect.ServiceDetail, newest []string) nodeState {
	if detail == nil {
		return nodeState{Node: node, State: stateAbsent, Reason: "the proxy does not know the Service"}
	}
	line := nodeState{Node: node, State: detail.State, Endpoints: detail.Endpoints}
	since := func(then time.Time) {
		if !then.IsZero() {
			line.Seconds = detail.Now.Sub(then).Round(time.Second).Seconds()
		}
	}
	for i := range detail.Domains {
		d := &detail.Domains[i]
		if d.Quarantine != nil && line.Reason == "" {
			line.Reason = d.Name + ": " + inspect.OneLine(d.Quarantine.Reason)
			since(d.Quarantine.Since)
		}
		if d.Error != "" && line.State == state.Applied {
			line.State, line.Reason = state.Pending, d.Error
		}
	}
	switch detail.State {
	case state.Failing:
		line.Reason = detail.Actor.LastFailure
		since(detail.Actor.FailedAt)
	case state.TooLarge:
		line.Reason = detail.Actor.TooLarge
	case state.Shadowed:
		line.Reason = servedBy(detail)
	}
	if line.State == state.Applied && len(newest) > 0 && !slices.Contains(newest, detail.Digest) {
		line.State, line.Reason = stateBehind, "the Service or its endpoints on this node differ from those of the API server"
		since(detail.LastChange)
	}
	return line
}

// servedBy names the Service that has a frontend of this one.
func servedBy(detail *inspect.ServiceDetail) string {
	for i := range detail.Frontends {
		if f := &detail.Frontends[i]; f.ServedBy != "" {
			return fmt.Sprintf("Service %s has %s %s:%d", f.ServedBy, f.Kind, f.Address, f.Port)
		}
	}
	return "another Service has some of its frontends"
}

func (r *whereReport) verdict() error {
	if r.Applied == r.Total {
		return nil
	}
	return fmt.Errorf("%s is not applied on %d of %s", r.Service, r.Total-r.Applied, plural.Of(r.Total, "node"))
}

// Print implements inspect.Answer.
func (r *whereReport) Print(to *terminal.Page) {
	to.Say("%s is applied on %d of %s\n", r.Service, r.Applied, plural.Of(r.Total, "node"))
	t, rows := terminal.NewTable(to, "NODE", "STATE", "SINCE", "ENDPOINTS", "REASON"), 0
	for _, n := range r.Nodes {
		if n.State != state.Applied || to.Wide {
			age := ""
			if n.Seconds > 0 {
				age = inspect.Age(time.Unix(int64(n.Seconds), 0), time.Unix(0, 0))
			}
			t.Row(n.Node, string(n.State), age, fmt.Sprint(n.Endpoints), cmp.Or(n.Reason, "-"))
			rows++
		}
	}
	if rows > 0 {
		to.Say("\n")
		t.End()
	}
	r.printSilent(to)
}
