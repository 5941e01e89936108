package client

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/inspect"
)

// BindFormat adds the flag for the format of the output, with the formats that its help names.
func BindFormat(cmd *cobra.Command, to *inspect.Output, formats ...string) {
	cmd.Flags().StringVarP(&to.Format, "output", "o", "", "format of the output: "+List(formats)+" (default: a table)")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// BindTables adds the flags of tables.
func BindTables(cmd *cobra.Command, to *inspect.Output) {
	BindFormat(cmd, to, inspect.Outputs...)
	cmd.Flags().BoolVar(&to.NoHeaders, "no-headers", false, "print tables without headers")
}

// BindSort adds the flags of lists.
func BindSort(cmd *cobra.Command, to *inspect.Output) {
	cmd.Flags().StringVar(&to.SortBy, "sort-by", "", "sort by a column or a JSONPath; numbers in descending order")
	cmd.Flags().BoolVar(&to.Reverse, "reverse", false, "reverse the order of --sort-by")
}

// List joins words as a sentence does.
func List(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
