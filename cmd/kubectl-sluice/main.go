// SPDX-License-Identifier: Apache-2.0

// Command kubectl-sluice asks the proxies of all nodes of a cluster. kubectl runs it as kubectl sluice.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/sluice-proxy/sluice/internal/fleet"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

// version is set by the linker (see Makefile).
var version = "devel"

func main() { os.Exit(run(os.Args[1:])) }

func run(words []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := fleet.Command("kubectl-sluice", version)
	root.Version = version
	root.SetArgs(words)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "error:", terminal.Lines(err.Error()))
	if _, usage := errors.AsType[inspect.UsageError](err); usage {
		return 2
	}
	return 1
}
