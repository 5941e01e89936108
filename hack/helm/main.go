// SPDX-License-Identifier: Apache-2.0

// Command helm renders the chart in tests as `helm template` does, with Helm's packages for values, schemas and templates.
// The helm binary has twice as many dependencies.
//
//	helm RELEASE CHART [--namespace NAMESPACE] [--set NAME=VALUE]...
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/strvals"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "helm:", err)
		os.Exit(1)
	}
}

// run prints the objects of a chart, in the order of its files.
func run(args []string, to io.Writer) error {
	flags := pflag.NewFlagSet("helm", pflag.ContinueOnError)
	namespace := flags.String("namespace", "default", "namespace of the release")
	set := flags.StringArray("set", nil, "values, as NAME=VALUE with a comma between them")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 2 {
		return errors.New("usage: helm RELEASE CHART [--namespace NAMESPACE] [--set NAME=VALUE]...")
	}
	chart, err := loader.Load(flags.Arg(1))
	if err != nil {
		return err
	}
	if err := chart.Validate(); err != nil {
		return fmt.Errorf("%s: %w", flags.Arg(1), err)
	}
	values := map[string]any{}
	for _, text := range *set {
		if err := strvals.ParseInto(text, values); err != nil {
			return fmt.Errorf("--set %s: %w", text, err)
		}
	}
	release := common.ReleaseOptions{Name: flags.Arg(0), Namespace: *namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(chart, values, release, nil)
	if err != nil {
		return err
	}
	files, err := engine.Engine{}.RenderWithContext(context.Background(), chart, all)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) == ".yaml" && strings.TrimSpace(files[name]) != "" {
			fmt.Fprintf(to, "---\n# Source: %s\n%s\n", name, files[name])
		}
	}
	return nil
}
