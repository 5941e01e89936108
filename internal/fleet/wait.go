// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/plural"
)

// waitFlags are the flags of kubectl sluice wait.
type waitFlags struct {
	condition, nodes, gone string
	timeout                time.Duration
}

func (f *flags) waitCommand() *cobra.Command {
	var w waitFlags
	cmd := &cobra.Command{
		Use:   "wait (svc/NAME --for=applied | --gone IP[:PORT])",
		Short: "Wait until a Service is applied, or an endpoint is gone, on all nodes",
		Long: `Wait until a Service is applied on all nodes, or on as many as --nodes says: with the
ports and endpoints that the API server has now. With --gone, wait until no node sends new
connections to an endpoint; a node that does not answer may still do so.

The exit status is 0 only if that is the case before the timeout.`,
		Example: "  kubectl sluice wait svc/web -n shop --for=applied --nodes=95%\n  kubectl sluice wait --gone 10.244.1.11:8080 --timeout 1m",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if w.timeout <= 0 {
				return inspect.Misused("--timeout %v: must be positive", w.timeout)
			}
			if w.gone != "" {
				if err := arguments()(cmd, args); err != nil {
					return err
				}
				return client.WaitGone(cmd, &f.Output, w.gone, w.timeout, func(ctx context.Context) (client.Proxies, error) {
					_, all, note, err := f.connectAll(ctx)
					if note != "" {
						fmt.Fprintln(f.Notes, note)
					}
					return client.Proxies{Targets: all}, err
				})
			}
			return f.waitApplied(cmd, args, &w)
		},
	}
	cmd.Flags().StringVar(&w.condition, "for", "applied", "the condition of the Service; must be applied")
	cmd.Flags().StringVar(&w.nodes, "nodes", "100%", "on how many nodes: a number or a percentage")
	cmd.Flags().StringVar(&w.gone, "gone", "", "the endpoint to wait for instead: IP or IP:PORT")
	cmd.Flags().DurationVar(&w.timeout, "timeout", 30*time.Second, "how long to wait")
	return cmd
}

// needed parses --nodes. The result returns the required number of nodes, given the number of all nodes.
func needed(text string) (func(all int) int, error) {
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || percent && n > 100 {
		return nil, inspect.Misused("--nodes %q: must be a number or a percentage, such as 10 or 95%%", text)
	}
	return func(all int) int {
		if percent {
			return (all*n + 99) / 100
		}
		return n
	}, nil
}

// waitPause is the shortest pause between two rounds of queries. A pause is at least as long as the round before it.
const waitPause = time.Second

// waitApplied queries the nodes in rounds. It continues after a failure, because the Service may be created soon.
func (f *flags) waitApplied(cmd *cobra.Command, args []string, w *waitFlags) error {
	if err := arguments("svc/NAME")(cmd, args); err != nil {
		return err
	}
	name, err := objectNamed(args[0], inspect.ServiceKinds)
	if err != nil {
		return err
	}
	enough, err := needed(w.nodes)
	if err != nil {
		return err
	}
	if w.condition != "applied" {
		return inspect.Misused("--for %q: must be applied", w.condition)
	}
	c, err := f.connect()
	if err != nil {
		return err
	}
	report, err := c.untilApplied(cmd.Context(), w.timeout, name, enough)
	if report == nil {
		return err
	}
	if printed := f.Print(cmd.OutOrStdout(), report); printed != nil {
		return printed
	}
	if report.Applied < enough(report.Total) {
		return fmt.Errorf("%s is applied on %d of %s after %v, want %d", report.Service, report.Applied, plural.Of(report.Total, "node"), w.timeout, enough(report.Total))
	}
	return nil
}

var errTooFew = errors.New("too few nodes")

// untilApplied returns the last complete report; nil with an error if there is none.
func (c *cluster) untilApplied(ctx context.Context, most time.Duration, name string, enough func(int) int) (*whereReport, error) {
	var last *whereReport
	err := client.WaitApplied(ctx, most, func(ctx context.Context) (time.Duration, error) {
		began := time.Now()
		report, err := c.where(ctx, name)
		if err == nil && (ctx.Err() == nil || last == nil) { // after the timeout, nodes are missing
			last = report
		}
		if err == nil && last.Applied < enough(last.Total) {
			err = errTooFew
		}
		return max(waitPause, time.Since(began)), err
	})
	return last, err
}
