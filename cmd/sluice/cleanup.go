package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/service"
)

func cleanupCommand() *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove the rules that Sluice or kube-proxy left on this node, and nothing else",
		Long: `Remove the rules that Sluice or kube-proxy left on this node: both variants of
iptables and nftables, both families; of IPVS the virtual servers, the sets and the
device kube-ipvs0, but not the virtual servers of others. What the kubelet uses too (KUBE-FIREWALL) stays, and so
does everything that has another name. Kernel settings that Sluice has changed go back
to what they were, unless somebody else has changed them since. A proxy that still
runs would write its rules again: beside one, nothing is done, but with --force.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.load(); err != nil {
				return err
			}
			if err := needPrivilege(""); err != nil {
				return err
			}
			return o.cleanUp(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.flags = config.BindState(cmd.Flags())
	return cmd
}

// cleanUp, where no proxy is in the way, removes the rules of all modes, puts kernel settings back, and prints what
// was there. The settings come last: rules may depend on them.
func (o *options) cleanUp(ctx context.Context, out io.Writer) error {
	release, err := takeAlone(o.Force)
	if err != nil {
		return err
	}
	defer release()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VARIANT\tFAMILY\tHOOKS\tCHAINS IN NAT\tIN FILTER\tIN MANGLE")
	ofIPVS, err := backend.CleanUp(ctx, func(variant string, family service.Family, s iptables.CleanupSummary) {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\n", variant, family, s.Hooks,
			s.Chains[iptables.NAT], s.Chains[iptables.Filter], s.Chains[iptables.Mangle])
	})
	fmt.Fprintln(table, "\nNFTABLES\tFAMILY\tTABLE")
	nftErr := backend.CleanUpNFTables(func(family service.Family, removed bool) {
		fmt.Fprintf(table, "\t%s\t%s\n", family, removedOr(removed))
	})
	fmt.Fprintln(table, "\nIPVS\tVIRTUAL SERVERS\tSETS\tDEVICE")
	fmt.Fprintf(table, "\t%d\t%d\t%s\n", ofIPVS.Servers, ofIPVS.Sets, removedOr(ofIPVS.Device))
	return errors.Join(err, nftErr, o.restore(table), table.Flush())
}

// removedOr says what became of a thing.
func removedOr(removed bool) string {
	if removed {
		return "removed"
	}
	return "none"
}

// restore puts kernel settings back, and prints those that there was something to do
// about.
func (o *options) restore(table io.Writer) error {
	done, err := sysctl.Files{Record: sysctl.NewRecord(o.Sluice.State.Dir, nil)}.Restore()
	if len(done) > 0 {
		fmt.Fprintln(table, "\nKERNEL SETTING\tFROM\tTO")
	}
	for _, d := range done {
		if d.Kept != "" {
			fmt.Fprintf(table, "%s\t%s\tkept: somebody else has set it since; it was %s\n", d.Name, d.Kept, d.To)
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", d.Name, d.From, d.To)
	}
	return err
}
