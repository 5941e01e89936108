// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/daemon/inspection"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

func dumpCommand() *cobra.Command {
	var flags clientFlags
	var file string
	cmd := &cobra.Command{
		Use:   "dump [--file FILE]",
		Short: "Save a support bundle for a bug report",
		Long: `Save one .tar.gz for a bug report: status, Services, the last changes, health,
configuration, metrics, goroutines, the kernel's rules and the versions of everything.
The bundle contains no secrets: it includes the path of the kubeconfig, but not its
contents. It does include Service names, addresses and endpoints. Review the printed
list of files before you share it.

If the proxy does not answer, the bundle contains the state of its process and what
the kernel has.`,
		Example: "  sluice dump\n  sluice dump --file - | ssh HOST 'cat > node1.tar.gz'",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "-" {
				return flags.dump(cmd, cmd.OutOrStdout())
			}
			if file == "" {
				host, err := os.Hostname()
				if err != nil {
					return err
				}
				file = fmt.Sprintf("sluice-dump-%s-%s.tar.gz", host, time.Now().UTC().Format("20060102T150405Z"))
			}
			if err := flags.save(cmd, file); err != nil {
				return err
			}
			return listArchive(cmd.OutOrStdout(), file)
		},
	}
	flags.bindSocket(cmd)
	cmd.Flags().StringVarP(&file, "file", "f", "", "file to write, which must not exist; - for standard output (default: sluice-dump-HOST-TIME.tar.gz)")
	return cmd
}

// dump writes the archive of the proxy or, if the proxy does not answer, the state of its process and of the kernel.
func (flags *clientFlags) dump(cmd *cobra.Command, to io.Writer) error {
	_, err := flags.client().Status(cmd.Context()) // before anything is written
	silent, is := errors.AsType[*inspect.Silent](err)
	if !is {
		return flags.client().Dump(cmd.Context(), to)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%v. The bundle contains the state of the process and of the kernel only.\n", silent)
	return inspection.DumpSilent(cmd.Context(), silent, version, to)
}

// save saves the archive in a new file, which only its owner may read.
func (flags *clientFlags) save(cmd *cobra.Command, file string) error {
	to, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(flags.dump(cmd, to), to.Close()); err != nil {
		return errors.Join(err, os.Remove(file))
	}
	return nil
}

// listArchive prints the index of an archive.
func listArchive(to io.Writer, file string) error {
	from, err := os.Open(file)
	if err != nil {
		return err
	}
	defer from.Close() // it was only read
	packed, err := gzip.NewReader(from)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for files := tar.NewReader(packed); ; {
		header, err := files.Next()
		if err != nil {
			return fmt.Errorf("%s: no index: %w", file, err)
		}
		if strings.HasSuffix(header.Name, "/INDEX.txt") {
			index, err := io.ReadAll(files)
			_, _ = fmt.Fprintf(to, "Saved %s:\n%s", file, terminal.Lines(string(index)))
			return err
		}
	}
}
