// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

// diffReport is the answer of kubectl sluice diff.
type diffReport struct {
	Nodes       [2]string    `json:"nodes"`
	Differences []difference `json:"differences"`
}

// difference is a value of a Service that differs between two nodes.
type difference struct {
	Service string    `json:"service"`
	Field   string    `json:"field"`
	Values  [2]string `json:"values"`
}

func (f *flags) diffCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff NODE NODE",
		Short: "Show what differs between two nodes",
		Long: `Show the Services whose state, addresses, ports or number of endpoints differ between two
nodes, in all namespaces or in that of -n, and whether the configuration differs. Traffic
policies and zones are good reasons for different numbers of endpoints. The exit status is 1
if there are differences.`,
		Example: "  kubectl sluice diff worker-1 worker-7",
		Args:    arguments("NODE", "NODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.Within = f.namespace
			return f.show(cmd, func(c *cluster) (report, error) { return c.diff(cmd.Context(), [2]string(args)) })
		},
	}
}

func (c *cluster) diff(ctx context.Context, names [2]string) (*diffReport, error) {
	all, _, err := c.proxies(ctx)
	if err != nil {
		return nil, err
	}
	var both []client.Target
	for _, name := range names {
		i := slices.IndexFunc(all, func(t client.Target) bool { return t.Node == name })
		if i < 0 {
			return nil, fmt.Errorf("no node %s", name)
		}
		both = append(both, all[i])
	}
	lists, silent := ask(ctx, c.flags, both, func(from *inspect.Client, ctx context.Context) (*inspect.ServiceList, error) {
		return from.Services(ctx, c.flags.namespace)
	})
	states, others := ask(ctx, c.flags, both, (*inspect.Client).Status)
	if silent = append(silent, others...); len(silent) > 0 {
		return nil, fmt.Errorf("node %s: %s", silent[0].Node, silent[0].Reason)
	}
	found := differences(lists[0].got, lists[1].got)
	if hashes := [2]string{states[0].got.ConfigurationHash, states[1].got.ConfigurationHash}; hashes[0] != hashes[1] {
		found = append([]difference{{"-", "configurationHash", hashes}}, found...)
	}
	return &diffReport{names, found}, nil
}

// differences compares two lists.
func differences(a, b *inspect.ServiceList) []difference {
	found := []difference{}
	before, after := byName(a), byName(b)
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		x, y := before[name], after[name]
		if x == nil || y == nil {
			found = append(found, difference{name, "known", [2]string{fmt.Sprint(x != nil), fmt.Sprint(y != nil)}})
			continue
		}
		left, right := valuesOf(x), valuesOf(y)
		for i, field := range compared {
			if left[i] != right[i] {
				found = append(found, difference{name, field, [2]string{left[i], right[i]}})
			}
		}
	}
	return found
}

func byName(list *inspect.ServiceList) map[string]*inspect.Service {
	all := map[string]*inspect.Service{}
	for i := range list.Items {
		all[list.Items[i].Namespace+"/"+list.Items[i].Name] = &list.Items[i]
	}
	return all
}

// compared names the values that valuesOf returns.
var compared = [...]string{"state", "endpoints", "clusterIPs", "externalIPs", "loadBalancerIPs", "ports", "policies", "balancing"}

func valuesOf(s *inspect.Service) [len(compared)]string {
	return [...]string{
		string(s.State), fmt.Sprint(s.Endpoints), fmt.Sprint(s.ClusterIPs), fmt.Sprint(s.ExternalIPs), fmt.Sprint(s.LoadBalancerIPs),
		fmt.Sprint(s.Ports), s.InternalPolicy + " " + s.ExternalPolicy, s.Balancing,
	}
}

func (r *diffReport) verdict() error {
	if n := len(r.Differences); n > 0 {
		return errors.New(plural.Of(n, "difference"))
	}
	return nil
}

// None implements inspect.List.
func (r *diffReport) None() string {
	return fmt.Sprintf("No differences between %s and %s", r.Nodes[0], r.Nodes[1])
}

// Print implements inspect.Answer.
func (r *diffReport) Print(to *terminal.Page) {
	t := terminal.NewTable(to, "SERVICE", "FIELD", strings.ToUpper(r.Nodes[0]), strings.ToUpper(r.Nodes[1]))
	for _, d := range r.Differences {
		t.Row(d.Service, d.Field, d.Values[0], d.Values[1])
	}
	t.End()
}
