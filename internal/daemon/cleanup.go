package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/service"
)

// CleanUp removes the rules of all modes, restores kernel settings, and prints what was
// there. It fails if a proxy is running. The settings come last: rules may depend on them.
func CleanUp(ctx context.Context, o *Options, out io.Writer) error {
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

func removedOr(removed bool) string {
	if removed {
		return "removed"
	}
	return "none"
}

// restore restores kernel settings, and prints those that differed.
func (o *Options) restore(table io.Writer) error {
	done, err := sysctl.Files{Record: sysctl.NewRecord(o.Sluice.State.Dir, nil)}.Restore()
	if len(done) > 0 {
		fmt.Fprintln(table, "\nKERNEL SETTING\tFROM\tTO")
	}
	for _, d := range done {
		if d.Kept != "" {
			fmt.Fprintf(table, "%s\t%s\tkept: another program has set it since; it was %s\n", d.Name, d.Kept, d.To)
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", d.Name, d.From, d.To)
	}
	return err
}
