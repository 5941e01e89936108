package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/internal/backend"
	"github.com/sluice-proxy/sluice/service"
)

func cleanupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cleanup",
		Short: "Remove the rules that Sluice or kube-proxy left on this node, and nothing else",
		Long: `Remove the rules that Sluice or kube-proxy left on this node: both variants of
iptables and nftables, both families. What the kubelet uses too (KUBE-FIREWALL) stays, and so
does everything that has another name. A proxy that still runs writes its rules
again; stop it first.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needPrivilege(""); err != nil {
				return err
			}
			return cleanUp(cmd.Context(), cmd.OutOrStdout())
		},
	}
}

// cleanUp removes the rules of all modes, and prints what was there.
func cleanUp(ctx context.Context, out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VARIANT\tFAMILY\tHOOKS\tCHAINS IN NAT\tIN FILTER\tIN MANGLE")
	err := backend.CleanUpIPTables(ctx, func(variant string, family service.Family, s iptables.CleanupSummary) {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\n", variant, family, s.Hooks,
			s.Chains[iptables.NAT], s.Chains[iptables.Filter], s.Chains[iptables.Mangle])
	})
	fmt.Fprintln(table, "\nNFTABLES\tFAMILY\tTABLE")
	nftErr := backend.CleanUpNFTables(func(family service.Family, removed bool) {
		found := "none"
		if removed {
			found = "removed"
		}
		fmt.Fprintf(table, "\t%s\t%s\n", family, found)
	})
	return errors.Join(err, nftErr, table.Flush())
}
