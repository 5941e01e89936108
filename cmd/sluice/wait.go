package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

// waitFlags are the flags of sluice wait.
type waitFlags struct {
	clientFlags
	gone, until, unreachable, kubeconfig string
	timeout                              time.Duration
	allNodes                             bool
	proxies                              []string
	port                                 uint16
}

// The values of --unreachable.
const (
	unreachableWait   = "wait"
	unreachableIgnore = "ignore"
)

func waitCommand() *cobra.Command {
	var flags waitFlags
	cmd := &cobra.Command{
		Use:   "wait --gone IP[:PORT] | --for applied [NAME...]",
		Short: "Wait until an endpoint gets no new connections, or Services are applied",
		Long: `Wait until the rules of this node send no new connections to an endpoint, as a preStop
hook that replaces a fixed sleep; see docs/balancing.md. Without a port, all ports of the
address count. The proxy answers for the rules that the kernel has: a Service whose
change is pending or held still sends to the endpoint.

With --all-nodes, it asks the health servers of all nodes. It lists the Nodes with a
kubeconfig or the service account of the pod, which must be allowed to list Nodes. The exit status
is 0 only if the endpoint is gone everywhere, and 1 after the timeout.

With --for applied, it waits until the kernel of this node has the newest rules that the proxy
knows of each named Service, or of all Services. A held or shadowed Service is not applied.`,
		Example: "  sluice wait --gone 10.244.1.11:8080\n  sluice wait --for applied shop/web\n  sluice wait --gone 10.244.1.11 --all-nodes --timeout 1m",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if flags.gone == "" && (flags.until != "" || len(args) > 0) {
				return flags.waitApplied(cmd, args)
			}
			if err := noArguments(cmd, args); err != nil {
				return err
			}
			switch {
			case flags.gone == "":
				return inspect.Misused("--gone: an endpoint is required, such as 10.0.0.1:8080; or use --for applied")
			case flags.timeout <= 0:
				return inspect.Misused("--timeout %v: must be positive", flags.timeout)
			case flags.unreachable != unreachableWait && flags.unreachable != unreachableIgnore:
				return inspect.Misused("--unreachable %q: must be %s or %s", flags.unreachable, unreachableWait, unreachableIgnore)
			}
			return client.WaitGone(cmd, &flags.Output, flags.gone, flags.timeout, flags.unreachable == unreachableIgnore, flags.targets)
		},
	}
	flags.bindNames(cmd)
	f := cmd.Flags()
	f.StringVar(&flags.until, "for", "", "what to wait for: applied")
	f.StringVar(&flags.gone, "gone", "", "the endpoint to wait for: IP or IP:PORT")
	f.DurationVar(&flags.timeout, "timeout", 30*time.Second, "how long to wait")
	f.BoolVar(&flags.allNodes, "all-nodes", false, "wait for all nodes of the cluster (default: this node)")
	f.StringSliceVar(&flags.proxies, "proxies", nil, "wait for the proxies with health servers at these URLs, such as http://192.0.2.1:10256")
	f.StringVar(&flags.unreachable, "unreachable", unreachableWait, "what to do about proxies that do not answer: wait until the timeout, and fail; or ignore them after three attempts")
	f.StringVar(&flags.kubeconfig, "kubeconfig", "", "kubeconfig file for --all-nodes; empty means the pod's service account")
	f.Uint16Var(&flags.port, "port", 10256, "port of the health servers for --all-nodes")
	cmd.MarkFlagsMutuallyExclusive("all-nodes", "proxies", "socket")
	cmd.MarkFlagsMutuallyExclusive("gone", "for")
	_ = cmd.RegisterFlagCompletionFunc("unreachable", cobra.FixedCompletions([]string{unreachableWait, unreachableIgnore}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

// targets returns whom to ask.
func (flags *waitFlags) targets(ctx context.Context) (all []client.Target, err error) {
	switch {
	case flags.allNodes:
		return client.Cluster(ctx, flags.kubeconfig, "sluice/"+version, flags.port)
	case len(flags.proxies) > 0:
		for _, text := range flags.proxies {
			target, err := client.At(text)
			if err != nil {
				return nil, inspect.Misused("--proxies %w", err)
			}
			all = append(all, target)
		}
		return all, nil
	default:
		return []client.Target{{Node: "this node", Client: flags.client()}}, nil
	}
}

// appliedRetry is the pause between two questions of wait --for applied.
const appliedRetry = 200 * time.Millisecond

// silence is how long a question has no answer until that says more than the answer before it.
const silence = time.Second

// waitApplied waits until the rules of Services, or of all, are applied.
func (flags *waitFlags) waitApplied(cmd *cobra.Command, args []string) error {
	if flags.until != "applied" {
		return inspect.Misused("--for %q: must be applied", flags.until)
	}
	if flags.timeout <= 0 {
		return inspect.Misused("--timeout %v: must be positive", flags.timeout)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), flags.timeout)
	defer cancel()
	cmd.SetContext(ctx)
	for reason := ""; ; {
		asked := time.Now()
		waiting, err := flags.unapplied(cmd, args)
		switch {
		case err == nil && waiting == "":
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "applied")
			return err
		case errors.As(err, new(inspect.UsageError)), client.Hung(ctx, err):
			return err
		case err != nil && (ctx.Err() == nil || reason == "" || errors.As(err, new(*inspect.Silent)) && time.Since(asked) > silence):
			reason = err.Error()
		case waiting != "":
			reason = waiting
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not applied after %v: %s", flags.timeout, reason)
		case <-time.After(appliedRetry):
		}
	}
}

// unapplied describes what is not applied yet.
func (flags *waitFlags) unapplied(cmd *cobra.Command, args []string) (string, error) {
	if len(args) == 0 {
		status, err := flags.client().Status(cmd.Context())
		if err != nil {
			return "", err
		}
		return status.Unapplied(), nil
	}
	keys, err := flags.named(cmd, args)
	if err != nil {
		return "", err
	}
	for _, key := range keys {
		found, err := flags.client().Brief(cmd.Context(), key.Namespace, key.Name)
		switch {
		case err != nil:
			return "", err
		case found == nil:
			return "", notServed(key.String())
		case found.State != "applied":
			return fmt.Sprintf("Service %s is %s; see sluice describe service %[1]s", key, found.State), nil
		}
	}
	return "", nil
}
