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
		Short: "List Services, endpoints or connections",
		Args:  noOtherResource,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(getServicesCommand(), getEndpointsCommand(), getConnectionsCommand())
	return cmd
}

func getServicesCommand() *cobra.Command {
	var flags clientFlags
	var namespace, sortBy string
	var all, watch bool
	cmd := &cobra.Command{
		Use:     "services [-A | -n NAMESPACE]",
		Aliases: []string{"service", "svc"},
		Short:   "List Services and their state",
		Long: `List the Services handled by the proxy on this node, in one or all
namespaces. For each Service, the table shows its endpoints, state, number of changes,
the latency of the last and slowest change (from receipt to kernel), and the number of
actor restarts. Headless Services are not proxied and not listed.`,
		Example: "  sluice get services -n shop\n  sluice get services --sort-by latency -o wide",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			if sortBy != "" && !slices.Contains(inspect.SortKeys, sortBy) {
				return setup.UsageError{Err: fmt.Errorf("--sort-by %q: must be %s", sortBy, list(inspect.SortKeys))}
			}
			return listServices(cmd, &flags, namespace, sortBy, watch)
		},
	}
	flags.bind(cmd, "wide")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "list one namespace (default: all)")
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "list Services in all namespaces (default)")
	cmd.Flags().StringVar(&sortBy, "sort-by", "", "sort by "+list(inspect.SortKeys)+", the largest first (default: by name)")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "watch for changes and print each changed Service (polls every second)")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	flags.completeFlag(cmd, "namespace", completeNamespaces)
	_ = cmd.RegisterFlagCompletionFunc("sort-by", cobra.FixedCompletions(inspect.SortKeys, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

// listServices prints the Services of a namespace, or of all, once or as they change.
func listServices(cmd *cobra.Command, flags *clientFlags, namespace, sortBy string, watch bool) error {
	options := inspect.ListOptions{Namespaces: namespace == "", Wide: flags.output == "wide"}
	ask := func(ctx context.Context) (*inspect.ServiceList, error) {
		found, err := flags.client().Services(ctx, namespace)
		if err == nil {
			found.Sort(sortBy)
		}
		return found, err
	}
	if watch {
		if flags.output != "" && flags.output != "wide" && flags.output != "table" {
			return setup.UsageError{Err: errors.New("--watch: prints a table; leave out --output " + flags.output)}
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
	return flags.print(cmd.OutOrStdout(), found, func(to io.Writer) error { return found.Print(to, options) })
}

func getEndpointsCommand() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{
		Use:     "endpoints NAMESPACE/NAME",
		Aliases: []string{"endpoint", "ep"},
		Short:   "List a Service's endpoints and why each is or is not selected",
		Long: `List the endpoints of a Service with their conditions, node and zone. For
internal traffic (ClusterIP) and external traffic (node ports, external IPs, load
balancer IPs), show whether this node sends new connections to the endpoint, and why.`,
		Example: "  sluice get endpoints shop/web",
		RunE: func(cmd *cobra.Command, args []string) error {
			namespace, name, err := flags.serviceNamed(cmd, args)
			if err != nil {
				return err
			}
			found, err := flags.client().Endpoints(cmd.Context(), namespace, name)
			if err != nil {
				return err
			}
			return flags.print(cmd.OutOrStdout(), found, found.Print)
		},
	}
	flags.bind(cmd)
	cmd.ValidArgsFunction = flags.completeService
	return cmd
}

func getConnectionsCommand() *cobra.Command {
	var flags clientFlags
	var q inspect.ConnectionQuery
	cmd := &cobra.Command{
		Use:     "connections [NAMESPACE/NAME]",
		Aliases: []string{"connection", "conn"},
		Short:   "List connections to Services",
		Long: `List open connections: client, Service, frontend address and endpoint.
In userspace mode, these are the forwarded TCP connections and UDP sessions,
oldest first, with bytes in each direction and age. In the other modes, these are the
connections translated by the kernel, with their state, and with bytes in each direction
if the kernel counts them (traffic.accounting).`,
		Example: "  sluice get connections shop/web\n  sluice get connections --client 192.0.2.7 -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			err := flags.check()
			if err == nil && len(args) > 0 {
				q.Namespace, q.Name, err = flags.serviceNamed(cmd, args)
			}
			if err != nil {
				return err
			}
			if err := q.Check(); err != nil {
				return setup.UsageError{Err: fmt.Errorf("--%w", err)}
			}
			found, err := flags.client().Connections(cmd.Context(), &q)
			if err != nil {
				return err
			}
			return flags.print(cmd.OutOrStdout(), found, found.Print)
		},
	}
	flags.bind(cmd)
	cmd.Flags().StringVarP(&q.Namespace, "namespace", "n", "", "list those of one namespace (default: all)")
	cmd.Flags().StringVar(&q.Client, "client", "", "list only connections from this client (IP or IP:PORT)")
	cmd.Flags().StringVar(&q.Endpoint, "endpoint", "", "list only connections to this endpoint (IP or IP:PORT)")
	cmd.Flags().StringVar(&q.Protocol, "protocol", "", "list tcp or udp (default: both)")
	cmd.ValidArgsFunction = flags.completeService
	flags.completeFlag(cmd, "namespace", completeNamespaces)
	return cmd
}

// serviceNamed checks the flags, and returns the Service that the only argument names.
func (flags *clientFlags) serviceNamed(cmd *cobra.Command, args []string) (namespace, name string, err error) {
	if err := flags.check(); err != nil {
		return "", "", err
	}
	if len(args) == 1 {
		namespace, name, _ = strings.Cut(args[0], "/")
	}
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		path := cmd.CommandPath()
		return "", "", setup.UsageError{Err: fmt.Errorf("%s: expected one argument, NAMESPACE/NAME, got %q (see %s --help)", path, strings.Join(args, " "), path)}
	}
	return namespace, name, nil
}
