package fleet

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

// topReport is the answer of kubectl sluice top.
type topReport struct {
	*inspect.TopList
	Total  int      `json:"total"`
	Silent []silent `json:"unanswered"`
	Note   string   `json:"note,omitempty"`
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
				return misused("%q: must be %s", args[0], q.Kind)
			}
			if err := q.Check(); err != nil {
				return misused("--%w", err)
			}
			q.Namespace, f.Within = f.namespace, f.namespace
			report, err := f.top(cmd.Context(), q)
			return f.show(cmd, report, err)
		},
	}
	client.BindSort(cmd, &f.Output)
	cmd.Flags().StringVar(&q.By, "by", "", "sort by "+strings.Join(inspect.TopSortKeys(q.Kind), ", ")+" (default: connections)")
	cmd.Flags().DurationVar(&q.Since, "since", time.Minute, "length of the period, at most "+inspect.TopSinceMax.String())
	cmd.Flags().IntVar(&q.Limit, "limit", inspect.TopDefault, "number of rows")
	return cmd
}

// top asks all nodes for the traffic of a period, and adds it up.
func (f *flags) top(ctx context.Context, q inspect.TopQuery) (*topReport, error) {
	_, all, note, err := f.connectAll(ctx)
	if err != nil {
		return nil, err
	}
	each := q
	each.Limit = inspect.TopMax
	answered, missing := split(ask(ctx, f, all, func(ctx context.Context, c *inspect.Client) (*inspect.TopList, error) { return c.Top(ctx, &each) }))
	var lists []*inspect.TopList
	for _, a := range answered {
		lists = append(lists, a.got)
	}
	return &topReport{inspect.MergeTop(&q, lists), len(all), missing, note}, nil
}

func (r *topReport) verdict() error { return incomplete(r.Silent, r.Total) }

func (r *topReport) print(to io.Writer, wide bool) error {
	if err := r.Print(to, wide); err != nil {
		return err
	}
	return printSilent(to, r.Silent, r.Total, r.Note)
}
