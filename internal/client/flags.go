// SPDX-License-Identifier: Apache-2.0

package client

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

// Before makes a command check something first. The error begins with the name of a flag.
func Before(cmd *cobra.Command, check func(*cobra.Command) error) {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd); err != nil {
			return inspect.Misused("--%w", err)
		}
		return run(cmd, args)
	}
}

// BindFormat adds the flag for the format of the output, with the formats that its help names. On a terminal, it turns
// on colors.
func BindFormat(cmd *cobra.Command, to *inspect.Output, formats ...string) {
	cmd.Flags().StringVarP(&to.Format, "output", "o", "", "format of the output: "+List(formats)+" (default: a table)")
	bindChoices(cmd, "output", formats)
	Before(cmd, func(cmd *cobra.Command) error {
		to.Notes = cmd.ErrOrStderr()
		to.Color = terminal.Colors(cmd.OutOrStdout())
		return to.Check()
	})
}

// bindChoices lets the shell complete the values of a flag.
func bindChoices(cmd *cobra.Command, flag string, choices []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// BindTables adds the flags of tables.
func BindTables(cmd *cobra.Command, to *inspect.Output) {
	BindFormat(cmd, to, inspect.Outputs...)
	cmd.Flags().BoolVar(&to.NoHeaders, "no-headers", false, "print tables without headers")
}

// BindSort adds the flags of lists.
func BindSort(cmd *cobra.Command, to *inspect.Output) {
	cmd.Flags().StringVar(&to.SortBy, "sort-by", "", "sort by a column; numbers in descending order")
	cmd.Flags().BoolVar(&to.Reverse, "reverse", false, "reverse the order of --sort-by")
}

// BindTop adds the flags of lists of traffic.
func BindTop(cmd *cobra.Command, q *inspect.TopQuery) {
	keys := inspect.TopSortKeys(q.Kind)
	cmd.Flags().StringVar(&q.By, "by", keys[0], "sort by "+List(keys)+", the largest first")
	cmd.Flags().DurationVar(&q.Since, "since", inspect.TopSinceDefault, "length of the period, at most "+inspect.TopSinceMax.String())
	cmd.Flags().IntVar(&q.Limit, "limit", inspect.TopDefault, "number of rows")
	bindChoices(cmd, "by", keys)
	Before(cmd, func(*cobra.Command) error { return q.Check() })
}

// BindFlows adds the flags that select records of connections. The answer has no end.
func BindFlows(cmd *cobra.Command, to *inspect.Output, q *inspect.FlowQuery) {
	var client string
	var verdicts []string
	cmd.Flags().StringVar(&client, "client", "", "show those of a client or of a network, such as 10.0.0.1 or 10.0.0.0/8")
	cmd.Flags().StringSliceVar(&verdicts, "verdict", nil, "show those that were closed, refused or dropped (default: all)")
	to.Stream = true
	Before(cmd, func(*cobra.Command) (err error) {
		*q, err = inspect.ParseFlowQuery(client, verdicts)
		return err
	})
}

// List joins words as a sentence does.
func List(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
