// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/peer"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/internal/terminal"
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

// cleanUp cleans up, or only prints what would be removed. It reports whether there is anything.
func cleanUp(ctx context.Context, o *setup.Options, out io.Writer, dry bool) (found bool, err error) {
	left, err := (&backend.Sweep{Dry: dry, Families: service.Families[:]}).Run(ctx)
	var page terminal.Page
	table := terminal.NarrowTable(&page)
	for i := range left {
		l := &left[i]
		if i > 0 && l.Title != left[i-1].Title {
			table.End()
			page.Say("\n")
			table = terminal.NarrowTable(&page)
		}
		table.Heads = strings.Split(l.Title, "\t")
		table.Row(row(l, dry)...)
		found = found || l.Any()
	}
	table.End()
	if !dry {
		err = errors.Join(err, backend.StopPreserving())
	}
	restored, restoreErr := restore(o, &page, dry)
	_, printErr := out.Write(page.Bytes())
	return found || restored, errors.Join(err, restoreErr, printErr)
}

// row returns a line of the table.
func row(l *backend.Leftover, dry bool) []string {
	cells := make([]string, len(l.Row))
	for i, cell := range l.Row {
		switch {
		case cell == true && dry:
			cells[i] = "to remove"
		case cell == true:
			cells[i] = "removed"
		case cell == false:
			cells[i] = "none"
		default:
			cells[i] = fmt.Sprint(cell)
		}
	}
	return cells
}

// restore restores kernel settings, and prints those that differed. It reports whether there
// were any to restore.
func restore(o *setup.Options, out *terminal.Page, dry bool) (found bool, err error) {
	files := sysctl.Files{Record: sysctl.NewRecord(o.Sluice.State.Dir, nil)}
	if dry {
		files.Plan = func(sysctl.Change) {}
	}
	done, err := files.Restore()
	if len(done) == 0 {
		return false, err
	}
	out.Say("\n")
	table := terminal.NarrowTable(out, "KERNEL SETTING", "FROM", "TO")
	for _, d := range done {
		if d.Kept != "" {
			table.Row(d.Name, d.Kept, "kept: another process changed it since; it was "+d.To)
			continue
		}
		found = true
		table.Row(d.Name, d.From, d.To)
	}
	table.End()
	return found, err
}
