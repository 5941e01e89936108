package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
)

// compatible is the kube-proxy release whose behaviour is followed.
const compatible = "v1.36"

// release is the one whose behaviour was measured and compared, which is what those
// are told who ask for a version of Kubernetes.
const release = compatible + ".3"

// version is set by the linker (see Makefile); a plain go build says "devel".
var version = "devel"

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which version this is",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionText())
			return err
		},
	}
}

// printVersion answers kube-proxy's --version: what is compatible with it first,
// which is what programs look at, then what this is.
func printVersion(out io.Writer, asked config.Version) error {
	reported := asked.Reported
	if reported == "" {
		reported = release
	}
	if _, err := fmt.Fprintln(out, "Kubernetes", reported); err != nil || !asked.Raw {
		return err
	}
	_, err := fmt.Fprintln(out, versionText())
	return err
}

func versionText() string {
	return fmt.Sprintf("sluice %s (%s, %s/%s, %s), behaves like kube-proxy %s",
		version, revision(), runtime.GOOS, runtime.GOARCH, runtime.Version(), compatible)
}

// revision is the commit that the binary was built from, as far as the
// toolchain recorded it.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown commit"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return "commit " + s.Value[:min(12, len(s.Value))]
		}
	}
	return "unknown commit"
}
