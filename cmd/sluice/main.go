// Command sluice is a node service proxy for Kubernetes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// Exit statuses.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// patience is how long after a signal to stop a second one is ignored; then it
// ends the program at once.
const patience = time.Second

// usageError is an error that the person at the keyboard can mend: a wrong flag
// or setting.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// exitError carries the exit status of a program that has said its piece.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func main() { os.Exit(run(os.Args)) }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// Whoever asks twice does not want to wait for an orderly end. The pause is
	// for signals that arrive doubled: from the terminal, and through a sandbox.
	context.AfterFunc(ctx, func() { time.AfterFunc(patience, stop) })
	root := rootCommand()
	words := args[1:]
	if filepath.Base(args[0]) == "kube-proxy" {
		words = append([]string{proxyName}, words...)
	}
	root.SetArgs(words)
	cmd, err := root.ExecuteContextC(ctx)
	var status exitError
	var usage usageError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "Error: %v\n", err)
		if cmd.Name() == proxyName {
			return exitFailed // kube-proxy knows one status for all that goes wrong
		}
		return exitUsage
	default:
		fmt.Fprintf(os.Stderr, "Error: %v\n", err)
		return exitFailed
	}
}
