// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

// streamsMax is how many nodes are observed by default: each stream holds a connection of the API server.
const streamsMax = 64

// observeFlags are the flags of kubectl sluice observe.
type observeFlags struct {
	q     inspect.FlowQuery
	nodes []string
	all   bool
}

func (f *flags) observeCommand() *cobra.Command {
	var o observeFlags
	cmd := &cobra.Command{
		Use:   "observe [svc/NAME]",
		Short: "Show connections to Services on all nodes as they end or are refused",
		Long: `Show each connection to a Service when it ends, and connections that are refused or dropped,
as sluice observe does on each node. The records of all nodes are merged as they arrive, so
their order is not exact. Without a Service, all namespaces or that of -n are shown, and at
most 64 nodes are observed unless --all or --node is given.

The proxies need security.inspection. While the command runs, the kernel of each node announces
every connection to the proxy; see docs/traffic.md.`,
		Example: "  kubectl sluice observe svc/web -n shop\n  kubectl sluice observe --verdict refused,dropped --node worker-7 -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return f.observe(cmd, args, &o) },
	}
	client.BindFlows(cmd, &f.Output, &o.q)
	cmd.Flags().StringSliceVar(&o.nodes, "node", nil, "observe these nodes only")
	cmd.Flags().BoolVar(&o.all, "all", false, fmt.Sprintf("observe all nodes, even if they are more than %d", streamsMax))
	return cmd
}

// observe prints the records of all nodes until the context ends or no node is left.
func (f *flags) observe(cmd *cobra.Command, args []string, o *observeFlags) error {
	c, all, note, err := f.connectAll(cmd.Context())
	if err != nil {
		return err
	}
	o.q.Namespace = f.namespace
	if len(args) > 0 {
		if o.q.Name, err = objectNamed(args[0], inspect.ServiceKinds); err != nil {
			return err
		}
		o.q.Namespace = c.namespace
	}
	chosen, err := o.choose(all)
	if err != nil {
		return err
	}
	if note != "" {
		fmt.Fprintln(f.Notes, note)
	}
	if left := len(all) - len(chosen); left > 0 && len(o.nodes) == 0 {
		fmt.Fprintf(f.Notes, "%d of %d nodes are observed; %s and all after it are left out (see --all and --node)\n", len(chosen), len(all), all[len(chosen)].Node)
	}
	renew := func(ctx context.Context, t *client.Target) client.Target {
		found, err := c.pods(ctx, "spec.nodeName="+t.Node)
		if err != nil {
			return *t
		}
		return c.proxyOf(t.Node, found[t.Node]) // an update replaces the pod
	}
	return (&client.Observation{Targets: chosen, Query: o.q, Output: &f.Output, Renew: renew}).Run(cmd.Context(), cmd.OutOrStdout())
}

// choose returns the nodes to observe.
func (o *observeFlags) choose(all []client.Target) ([]client.Target, error) {
	for _, name := range o.nodes {
		if !slices.ContainsFunc(all, func(t client.Target) bool { return t.Node == name }) {
			return nil, fmt.Errorf("no node %s", name)
		}
	}
	if len(o.nodes) > 0 {
		return slices.DeleteFunc(slices.Clone(all), func(t client.Target) bool { return !slices.Contains(o.nodes, t.Node) }), nil
	}
	if o.all || o.q.Name != "" {
		return all, nil
	}
	return all[:min(len(all), streamsMax)], nil
}
