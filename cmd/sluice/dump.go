package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
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
list of files before you share it.`,
		Example: "  sluice dump\n  sluice dump --file - | ssh HOST 'cat > node1.tar.gz'",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "-" {
				return flags.client().Dump(cmd.Context(), cmd.OutOrStdout())
			}
			if file == "" {
				host, err := os.Hostname()
				if err != nil {
					return err
				}
				file = fmt.Sprintf("sluice-dump-%s-%s.tar.gz", host, time.Now().UTC().Format("20060102T150405Z"))
			}
			if err := flags.save(cmd.Context(), file); err != nil {
				return err
			}
			return listArchive(cmd.OutOrStdout(), file)
		},
	}
	flags.bindSocket(cmd)
	cmd.Flags().StringVarP(&file, "file", "f", "", "file to write, which must not exist; - for standard output (default: sluice-dump-HOST-TIME.tar.gz)")
	return cmd
}

// save saves the archive in a new file, which only its owner may read.
func (flags *clientFlags) save(ctx context.Context, file string) error {
	to, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(flags.client().Dump(ctx, to), to.Close()); err != nil {
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
	defer from.Close() //nolint:errcheck // it was only read
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
			_, _ = fmt.Fprintf(to, "Saved %s:\n", file)
			_, err = io.Copy(to, files)
			return err
		}
	}
}
