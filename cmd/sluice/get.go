package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

func getCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get",
		Short: "List the Services, endpoints or connections of the running proxy",
		Args:  noOtherResource,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(getServicesCommand(), getEndpointsCommand(), getConnectionsCommand())
	return cmd
}

func getServicesCommand() *cobra.Command {
	var a asking
	var namespace, sortBy string
	var all, watch bool
	cmd := &cobra.Command{
		Use:     "services [-A | -n NAMESPACE]",
		Aliases: []string{"service", "svc"},
		Short:   "List the Services that the running proxy serves, with their state",
		Long: `List the Services that the proxy on this node serves, of all namespaces or one:
endpoints, state, how often the Service changed, how long the last change and the
longest one took from their receipt to the kernel, and how often its actor was
restarted. A headless Service needs no proxy, and is not listed.`,
		Example: "  sluice get services -n shop\n  sluice get services --sort-by latency -o wide",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.check(); err != nil {
				return err
			}
			if sortBy != "" && !slices.Contains(inspect.SortKeys, sortBy) {
				return setup.UsageError{Err: fmt.Errorf("--sort-by %q: want %s", sortBy, list(inspect.SortKeys))}
			}
			return listServices(cmd, &a, namespace, sortBy, watch)
		},
	}
	a.bind(cmd, "wide")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "list one namespace (default: all)")
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "list all namespaces, the default")
	cmd.Flags().StringVar(&sortBy, "sort-by", "", "sort by "+list(inspect.SortKeys)+", the largest first (default: by name)")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on and print each Service that changes, asking every second")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	a.completeFlag(cmd, "namespace", completeNamespaces)
	_ = cmd.RegisterFlagCompletionFunc("sort-by", cobra.FixedCompletions(inspect.SortKeys, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

// listServices prints the Services of a namespace, or of all, once or as they change.
func listServices(cmd *cobra.Command, a *asking, namespace, sortBy string, watch bool) error {
	options := inspect.ListOptions{Namespaces: namespace == "", Wide: a.output == "wide"}
	ask := func(ctx context.Context) (*inspect.ServiceList, error) {
		found, err := a.client().Services(ctx, namespace)
		if err == nil {
			found.Sort(sortBy)
		}
		return found, err
	}
	if watch {
		if a.output != "" && a.output != "wide" && a.output != "table" {
			return setup.UsageError{Err: errors.New("--watch: prints a table; leave out --output " + a.output)}
		}
		return inspect.Watch(cmd.Context(), cmd.OutOrStdout(), options, ask)
	}
	found, err := ask(cmd.Context())
	if err != nil {
		return err
	}
	if len(found.Items) == 0 && namespace != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "No Services in namespace %s.\n", namespace)
	}
	return a.print(cmd.OutOrStdout(), found, func(to io.Writer) error { return found.Print(to, options) })
}

func getEndpointsCommand() *cobra.Command {
	var a asking
	cmd := &cobra.Command{
		Use:     "endpoints NAMESPACE/NAME",
		Aliases: []string{"endpoint", "ep"},
		Short:   "List the endpoints of a Service, and why each is chosen or not",
		Long: `List the endpoints of a Service: their conditions, node and zone, whether new
connections reach them from this node, and the rule that decided it, for traffic
from inside the cluster (to the ClusterIP) and from outside (to node ports,
External IPs and load balancers).`,
		Example: "  sluice get endpoints shop/web",
		RunE: func(cmd *cobra.Command, args []string) error {
			namespace, name, err := a.serviceNamed(cmd, args)
			if err != nil {
				return err
			}
			found, err := a.client().Endpoints(cmd.Context(), namespace, name)
			if err != nil {
				return err
			}
			return a.print(cmd.OutOrStdout(), found, found.Print)
		},
	}
	a.bind(cmd)
	cmd.ValidArgsFunction = a.completeService
	return cmd
}

func getConnectionsCommand() *cobra.Command {
	var a asking
	var q inspect.ConnectionQuery
	cmd := &cobra.Command{
		Use:     "connections [NAMESPACE/NAME]",
		Aliases: []string{"connection", "conn"},
		Short:   "List the connections that the running proxy forwards (mode userspace)",
		Long: `List the open TCP connections and UDP sessions that the proxy on this node forwards
itself, the oldest first: client, Service, the address that the client uses, the
endpoint that it was given to, bytes each way, and age. In other modes the kernel
has the connections, and the proxy cannot list them.`,
		Example: "  sluice get connections shop/web\n  sluice get connections --client 192.0.2.7 -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			err := a.check()
			if err == nil && len(args) > 0 {
				q.Namespace, q.Name, err = a.serviceNamed(cmd, args)
			}
			if err != nil {
				return err
			}
			if err := q.Check(); err != nil {
				return setup.UsageError{Err: fmt.Errorf("--%w", err)}
			}
			found, err := a.client().Connections(cmd.Context(), &q)
			if err != nil {
				return err
			}
			return a.print(cmd.OutOrStdout(), found, found.Print)
		},
	}
	a.bind(cmd)
	cmd.Flags().StringVarP(&q.Namespace, "namespace", "n", "", "list those of one namespace (default: all)")
	cmd.Flags().StringVar(&q.Client, "client", "", "list those of one client: an address, with a port or without one")
	cmd.Flags().StringVar(&q.Endpoint, "endpoint", "", "list those to one endpoint, as --client")
	cmd.Flags().StringVar(&q.Protocol, "protocol", "", "list tcp or udp (default: both)")
	cmd.ValidArgsFunction = a.completeService
	a.completeFlag(cmd, "namespace", completeNamespaces)
	return cmd
}

// serviceNamed checks the flags, and returns the Service that the only argument names.
func (a *asking) serviceNamed(cmd *cobra.Command, args []string) (namespace, name string, err error) {
	if err := a.check(); err != nil {
		return "", "", err
	}
	if len(args) == 1 {
		namespace, name, _ = strings.Cut(args[0], "/")
	}
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		path := cmd.CommandPath()
		return "", "", setup.UsageError{Err: fmt.Errorf("%s: want one Service as NAMESPACE/NAME, got %q (see %s --help)", path, strings.Join(args, " "), path)}
	}
	return namespace, name, nil
}
