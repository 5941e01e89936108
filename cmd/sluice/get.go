// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

func getCommand() *cobra.Command {
	return resourceCommand("get", "List Services, endpoints, connections or events",
		getServicesCommand(), getEndpointsCommand(), getConnectionsCommand(), getEventsCommand())
}

// resourceCommand returns a command with a subcommand for each resource. Its help lists the resources.
func resourceCommand(use, short string, resources ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Long:  short + ". The resources, with their other names, are:\n",
		Args:  noOtherResource,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, r := range resources {
		cmd.Long += fmt.Sprintf("\n  %-12s %s", r.Name(), strings.Join(r.Aliases, ", "))
	}
	// With this flag, cobra finds the resource in "get -A svc".
	cmd.PersistentFlags().BoolP("all-namespaces", "A", false, "all namespaces (default)")
	_ = cmd.PersistentFlags().MarkHidden("all-namespaces") // the flag exists
	cmd.AddCommand(resources...)
	return cmd
}

func getServicesCommand() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{
		Use:     "services [NAME...]",
		Aliases: []string{"service", "svc", "all"},
		Short:   "List Services and their state",
		Long: `List the Services handled by the proxy on this node, in one or all
namespaces. For each Service, the table shows its endpoints, state, number of changes,
the latency of the last and slowest change (from receipt to kernel), and the number of
actor restarts. Headless Services are not proxied and not listed.`,
		Example: "  sluice get services -n shop\n  sluice get services --state held\n  sluice get services --sort-by latency -o wide",
		RunE: func(cmd *cobra.Command, args []string) error {
			return flags.show(cmd, true, func(context.Context) (inspect.Answer, error) { return flags.list(cmd, args) })
		},
	}
	flags.bindList(cmd)
	flags.bindSelectors(cmd)
	client.BindSort(cmd, &flags.Output)
	return cmd
}

func getEndpointsCommand() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{
		Use:     "endpoints [NAME...]",
		Aliases: []string{"endpoint", "ep", "endpointslices", "endpointslice"},
		Short:   "List Services' endpoints and why each is or is not selected",
		Long: `List the endpoints of a Service with their conditions, node and zone. For
internal traffic (ClusterIP) and external traffic (node ports, external IPs, load
balancer IPs), show whether this node sends new connections to the endpoint, and why.

For several Services, or with --output wide, --no-headers or --sort-by, it prints one table
without the rules for each port.`,
		Example: "  sluice get endpoints shop/web\n  sluice get endpoints -n shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			return flags.show(cmd, false, func(context.Context) (inspect.Answer, error) {
				return each[inspect.Endpoints](cmd, &flags, args, (*inspect.Client).Endpoints, (*inspect.Client).AllEndpoints)
			})
		},
	}
	flags.bindList(cmd)
	client.BindSort(cmd, &flags.Output)
	return cmd
}

// each queries the Services that the arguments name one by one, or all Services with one query. If the arguments name
// one Service, the answer is not a list.
func each[L interface {
	~[]P
	inspect.Answer
}, P inspect.Answer](cmd *cobra.Command, flags *clientFlags, args []string, ask func(c *inspect.Client, ctx context.Context, namespace, name string) (P, error),
	askAll func(c *inspect.Client, ctx context.Context, namespace string) ([]P, error)) (inspect.Answer, error) {
	var all L
	var err error
	if len(args) == 0 {
		all, err = askAll(flags.client(), cmd.Context(), flags.namespace)
	}
	keys, namedErr := flags.named(cmd, args)
	if err = errors.Join(err, namedErr); err != nil {
		return nil, err
	}
	for _, key := range keys {
		found, err := ask(flags.client(), cmd.Context(), key.Namespace, key.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, found)
	}
	if len(args) == 1 {
		return all[0], nil
	}
	return all, nil
}

func getEventsCommand() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{
		Use:     "events",
		Aliases: []string{"event", "ev"},
		Short:   "List what the proxy reported about Services and the node",
		Long: `List the last 200 events that the proxy reported about Services and the node since its
process began, the oldest first. The proxy remembers them, so the command needs no API server.`,
		Example: "  sluice get events\n  sluice get events -n shop",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.show(cmd, true, func(ctx context.Context) (inspect.Answer, error) {
				return flags.client().Events(ctx, flags.namespace)
			})
		},
	}
	flags.bindNames(cmd)
	cmd.ValidArgsFunction = nil
	client.BindSort(cmd, &flags.Output)
	flags.bindWatch(cmd)
	return cmd
}

func getConnectionsCommand() *cobra.Command {
	var flags clientFlags
	var q inspect.ConnectionQuery
	var by string
	cmd := &cobra.Command{
		Use:     "connections [NAME]",
		Aliases: []string{"connection", "conn"},
		Short:   "List connections to Services",
		Long: `List open connections: client, Service, frontend address and endpoint.
In userspace mode, these are the forwarded TCP connections and UDP sessions,
oldest first, with bytes in each direction and age. In the other modes, these are the
connections translated by the kernel, with their state, and with bytes in each direction
if the kernel counts them (traffic.accounting).

With --by client, list the clients of each Service with their number of open connections and
their bytes instead, the most connections first.`,
		Example: "  sluice get connections shop/web\n  sluice get connections --client 192.0.2.7 -o json\n  sluice get connections -n shop --by client",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.into(cmd, args, &q.Namespace, &q.Name); err != nil {
				return err
			}
			if err := q.Check(); err != nil {
				return inspect.Misused("--%w", err)
			}
			if by != "" {
				return flags.printClients(cmd, by, &q)
			}
			found, err := flags.client().Connections(cmd.Context(), &q)
			if err != nil {
				return err
			}
			return flags.Print(cmd.OutOrStdout(), found)
		},
	}
	flags.bindNames(cmd)
	client.BindSort(cmd, &flags.Output)
	cmd.Flags().StringVar(&by, "by", "", "add the connections up: client")
	cmd.Flags().StringVar(&q.Client, "client", "", "list only connections from this client (IP or IP:PORT)")
	cmd.Flags().StringVar(&q.Endpoint, "endpoint", "", "list only connections to this endpoint (IP or IP:PORT)")
	cmd.Flags().StringVar(&q.Protocol, "protocol", "", "list tcp or udp (default: both)")
	for _, of := range []string{"client", "endpoint", "protocol"} {
		cmd.MarkFlagsMutuallyExclusive("by", of)
	}
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{"client"}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

// printClients prints the clients of the Services that a query selects.
func (flags *clientFlags) printClients(cmd *cobra.Command, by string, q *inspect.ConnectionQuery) error {
	if by != "client" {
		return inspect.Misused("--by %q: must be client", by)
	}
	clients := inspect.TopQuery{Kind: "clients", Namespace: q.Namespace, Name: q.Name, By: "open", Limit: inspect.TopMax}
	found, err := flags.client().Top(cmd.Context(), &clients)
	if err != nil {
		return err
	}
	return flags.Print(cmd.OutOrStdout(), found)
}
