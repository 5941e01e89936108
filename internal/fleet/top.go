// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

// topReport is the answer of kubectl sluice top.
type topReport struct {
	*inspect.TopList
	reach
}

func (f *flags) topCommand() *cobra.Command {
	q := inspect.TopQuery{Kind: "services"}
	cmd := &cobra.Command{
		Use:   "top services",
		Short: "Show the Services with the most traffic on all nodes together",
		Long: `Show the Services with the most traffic, added up over all nodes, in all namespaces or in
that of -n. Each node reports the 1000 Services with the most traffic there, so sums of small
Services can be too low.`,
		Example: "  kubectl sluice top services --by bytes --since 5m",
		Args:    arguments("services"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] != q.Kind {
				return inspect.Misused("%q: must be %s", args[0], q.Kind)
			}
			q.Namespace, f.Within = f.namespace, f.namespace
			return f.show(cmd, func(c *cluster) (report, error) { return c.top(cmd.Context(), q) })
		},
	}
	client.BindSort(cmd, &f.Output)
	client.BindTop(cmd, &q)
	return cmd
}

// top asks all nodes for the traffic of a period, and adds it up.
func (c *cluster) top(ctx context.Context, q inspect.TopQuery) (*topReport, error) {
	each := q
	each.Limit = inspect.TopMax
	answered, reached, err := askAll(ctx, c, func(c *inspect.Client, ctx context.Context) (*inspect.TopList, error) { return c.Top(ctx, &each) })
	if err != nil {
		return nil, err
	}
	var lists []*inspect.TopList
	for _, a := range answered {
		lists = append(lists, a.got)
	}
	return &topReport{inspect.MergeTop(&q, lists), reached}, nil
}

// Print implements inspect.Answer.
func (r *topReport) Print(to *terminal.Page) {
	r.TopList.Print(to)
	r.printSilent(to)
}
