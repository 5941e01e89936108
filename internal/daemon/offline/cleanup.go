package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/peer"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/service"
)

// Cleanup removes the rules of all modes, restores kernel settings, and prints what was
// there. It fails if a proxy is running. The settings come last: rules may depend on them.
func Cleanup(ctx context.Context, o *setup.Options, out io.Writer) error {
	release, err := peer.TakeAlone(o.Force)
	if err != nil {
		return err
	}
	defer release()
	_, err = cleanUp(ctx, o, out, false)
	return err
}

// CleanupDryRun prints what Cleanup would remove and restore, changes nothing, and reports
// whether there is anything. A proxy may be running.
func CleanupDryRun(ctx context.Context, o *setup.Options, out io.Writer) (found bool, err error) {
	found, err = cleanUp(ctx, o, out, true)
	for _, who := range peer.Serving(peer.Peek()) {
		fmt.Fprintf(out, "\nA proxy is running: %s. A cleanup needs --force.\n", who)
	}
	return found, err
}

// cleanUp cleans up, or only says what would be removed. It reports whether there is anything.
func cleanUp(ctx context.Context, o *setup.Options, out io.Writer, dry bool) (found bool, err error) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	word := func(there bool) string {
		found = found || there
		switch {
		case !there:
			return "none"
		case dry:
			return "to remove"
		default:
			return "removed"
		}
	}
	fmt.Fprintln(table, "VARIANT\tFAMILY\tHOOKS\tCHAINS IN NAT\tIN FILTER\tIN MANGLE")
	ofIPVS, err := backend.Cleanup(ctx, dry, func(variant string, family service.Family, s iptkernel.CleanupSummary) {
		found = found || s.Any()
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\n", variant, family, s.Hooks,
			s.Chains[iptrender.NAT], s.Chains[iptrender.Filter], s.Chains[iptrender.Mangle])
	})
	found = found || ofIPVS.Any()
	fmt.Fprintln(table, "\nNFTABLES\tFAMILY\tTABLE")
	nftErr := backend.CleanUpNFTables(dry, service.Families[:], func(family service.Family, there bool) {
		fmt.Fprintf(table, "\t%s\t%s\n", family, word(there))
	})
	fmt.Fprintln(table, "\nIPVS\tVIRTUAL SERVERS\tSETS\tDEVICE")
	fmt.Fprintf(table, "\t%d\t%d\t%s\n", ofIPVS.Servers, ofIPVS.Sets, word(ofIPVS.Device))
	fmt.Fprintln(table, "\nUSERSPACE\tFAMILY\tLOCAL ADDRESSES\tGUARD")
	routesErr := backend.CleanUpUserspace(ctx, dry, service.Families[:], func(family service.Family, left backend.UserspaceLeft) {
		found = found || left.Any()
		fmt.Fprintf(table, "\t%s\t%d\t%s\n", family, left.Addresses, word(left.Guard))
	})
	if !dry {
		routesErr = errors.Join(routesErr, backend.StopPreserving())
	}
	restored, restoreErr := restore(o, table, dry)
	return found || restored, errors.Join(err, nftErr, routesErr, restoreErr, table.Flush())
}

// restore restores kernel settings, and prints those that differed. It reports whether there
// were any to restore.
func restore(o *setup.Options, table io.Writer, dry bool) (found bool, err error) {
	files := sysctl.Files{Record: sysctl.NewRecord(o.Sluice.State.Dir, nil)}
	if dry {
		files.Plan = func(sysctl.Change) {}
	}
	done, err := files.Restore()
	if len(done) > 0 {
		fmt.Fprintln(table, "\nKERNEL SETTING\tFROM\tTO")
	}
	for _, d := range done {
		if d.Kept != "" {
			fmt.Fprintf(table, "%s\t%s\tkept: another process changed it since; it was %s\n", d.Name, d.Kept, d.To)
			continue
		}
		found = true
		fmt.Fprintf(table, "%s\t%s\t%s\n", d.Name, d.From, d.To)
	}
	return found, err
}
