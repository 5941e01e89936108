// SPDX-License-Identifier: Apache-2.0

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
	urls                                 []string
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
			return client.WaitGone(cmd, &flags.Output, flags.gone, flags.timeout, flags.proxies)
		},
	}
	flags.bindNames(cmd)
	f := cmd.Flags()
	f.StringVar(&flags.until, "for", "", "what to wait for: applied")
	f.StringVar(&flags.gone, "gone", "", "the endpoint to wait for: IP or IP:PORT")
	f.DurationVar(&flags.timeout, "timeout", 30*time.Second, "how long to wait")
	f.BoolVar(&flags.allNodes, "all-nodes", false, "wait for all nodes of the cluster (default: this node)")
	f.StringSliceVar(&flags.urls, "proxies", nil, "wait for the proxies with health servers at these URLs, such as http://192.0.2.1:10256")
	f.StringVar(&flags.unreachable, "unreachable", unreachableWait, "what to do about proxies that do not answer: wait until the timeout, and fail; or ignore them after three attempts")
	f.StringVar(&flags.kubeconfig, "kubeconfig", "", "kubeconfig file for --all-nodes; empty means the pod's service account")
	f.Uint16Var(&flags.port, "port", 10256, "port of the health servers for --all-nodes")
	cmd.MarkFlagsMutuallyExclusive("all-nodes", "proxies", "socket")
	cmd.MarkFlagsMutuallyExclusive("gone", "for")
	_ = cmd.RegisterFlagCompletionFunc("unreachable", cobra.FixedCompletions([]string{unreachableWait, unreachableIgnore}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

// proxies returns the proxies to query.
func (flags *waitFlags) proxies(ctx context.Context) (p client.Proxies, err error) {
	p.IgnoreUnreachable = flags.unreachable == unreachableIgnore
	switch {
	case flags.allNodes:
		p.Targets, err = client.Cluster(ctx, flags.kubeconfig, "sluice/"+version, flags.port)
	case len(flags.urls) > 0:
		for _, text := range flags.urls {
			target, err := client.At(text)
			if err != nil {
				return p, inspect.Misused("--proxies %w", err)
			}
			p.Targets = append(p.Targets, target)
		}
	default:
		p.Targets = []client.Target{{Node: "this node", Client: flags.client()}}
	}
	return p, err
}

// appliedRetry is the pause between two queries of wait --for applied.
const appliedRetry = 200 * time.Millisecond

// waitApplied waits until the rules of the named Services, or of all Services, are applied.
func (flags *waitFlags) waitApplied(cmd *cobra.Command, args []string) error {
	if flags.until != "applied" {
		return inspect.Misused("--for %q: must be applied", flags.until)
	}
	if flags.timeout <= 0 {
		return inspect.Misused("--timeout %v: must be positive", flags.timeout)
	}
	err := client.WaitApplied(cmd.Context(), flags.timeout, func(ctx context.Context) (time.Duration, error) {
		cmd.SetContext(ctx)
		return appliedRetry, flags.applied(cmd, args)
	})
	if err == nil {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "applied")
	}
	return err
}

// applied returns an error that says what is not applied yet.
func (flags *waitFlags) applied(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		status, err := flags.client().Status(cmd.Context())
		if err != nil {
			return err
		}
		if text := status.Unapplied(); text != "" {
			return errors.New(text)
		}
		return nil
	}
	keys, err := flags.named(cmd, args)
	if err != nil {
		return err
	}
	for _, key := range keys {
		found, err := flags.client().Brief(cmd.Context(), key.Namespace, key.Name)
		switch {
		case err != nil:
			return err
		case found == nil:
			return notServed(key.String())
		case found.State != "applied":
			return fmt.Errorf("%s is %s; see sluice describe service %[1]s", key, found.State)
		}
	}
	return nil
}
