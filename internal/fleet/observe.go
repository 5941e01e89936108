package fleet

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/plural"
)

const (
	// streamsMax is how many nodes are observed by default: each stream holds a connection of the API server.
	streamsMax = 64
	// reconnectsMax bounds the attempts to follow a node again, the first after reconnectPause, each after twice the time of the
	// one before. A stream that lasted for steadyTime starts over.
	reconnectsMax  = 5
	reconnectPause = time.Second
	steadyTime     = time.Minute
	// mergedMax bounds the records that wait to be printed. Then the streams wait, and each node counts what it drops.
	mergedMax = 1024
)

// observeFlags are the flags of kubectl sluice observe.
type observeFlags struct {
	client   string
	verdicts []string
	nodes    []string
	all      bool
}

// nodeFlow is a record of a node.
type nodeFlow struct {
	Node string `json:"node"`
	*inspect.FlowEvent
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
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.CheckStream(); err != nil {
				return misused("--%w", err)
			}
			q, err := inspect.ParseFlowQuery(o.client, o.verdicts)
			if err != nil {
				return misused("--%w", err)
			}
			return f.observe(cmd, args, &o, q)
		},
	}
	cmd.Flags().StringVar(&o.client, "client", "", "show those of a client or of a network, such as 10.0.0.1 or 10.0.0.0/8")
	cmd.Flags().StringSliceVar(&o.verdicts, "verdict", nil, "show those that were closed, refused or dropped (default: all)")
	cmd.Flags().StringSliceVar(&o.nodes, "node", nil, "observe these nodes only")
	cmd.Flags().BoolVar(&o.all, "all", false, fmt.Sprintf("observe all nodes, even if they are more than %d", streamsMax))
	return cmd
}

// observe prints the records of all nodes until the context ends or no node is left.
func (f *flags) observe(cmd *cobra.Command, args []string, o *observeFlags, q inspect.FlowQuery) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	c, all, note, err := f.connectAll(ctx)
	if err != nil {
		return err
	}
	q.Namespace = f.namespace
	if len(args) > 0 {
		if q.Name, err = objectNamed(args[0], serviceKinds...); err != nil {
			return err
		}
		q.Namespace = c.namespace
	}
	chosen, err := o.choose(all, q.Name != "")
	if err != nil {
		return err
	}
	if note != "" {
		fmt.Fprintln(f.errors, note)
	}
	if left := len(all) - len(chosen); left > 0 && len(o.nodes) == 0 {
		fmt.Fprintf(f.errors, "%d of %d nodes are observed; %s and all after it are left out (see --all and --node)\n", len(chosen), len(all), all[len(chosen)].node)
	}
	merged, told := make(chan nodeFlow, mergedMax), make(chan string, len(chosen))
	var following sync.WaitGroup
	for i := range chosen {
		following.Go(func() { c.follow(ctx, chosen[i], q, merged, told) })
	}
	go func() {
		following.Wait()
		close(merged)
	}()
	err = f.printMerged(cmd.OutOrStdout(), chosen, merged, told)
	cancel()
	for range merged { // until all have ended
	}
	if err == nil && cmd.Context().Err() == nil {
		err = fmt.Errorf("none of %s can be observed", plural.Of(len(chosen), "node"))
	}
	return err
}

// choose returns the nodes to observe.
func (o *observeFlags) choose(all []proxy, service bool) ([]proxy, error) {
	for _, name := range o.nodes {
		if !slices.ContainsFunc(all, func(p proxy) bool { return p.node == name }) {
			return nil, fmt.Errorf("no node %s", name)
		}
	}
	if len(o.nodes) > 0 {
		return slices.DeleteFunc(slices.Clone(all), func(p proxy) bool { return !slices.Contains(o.nodes, p.node) }), nil
	}
	if o.all || service {
		return all, nil
	}
	return all[:min(len(all), streamsMax)], nil
}

// follow passes the records of a node on. After a failure it tries again, a few times.
func (c *cluster) follow(ctx context.Context, p proxy, q inspect.FlowQuery, to chan<- nodeFlow, told chan<- string) {
	tell := func(text string) {
		select {
		case told <- p.node + ": " + text:
		case <-ctx.Done():
		}
	}
	for attempt := 1; ; attempt++ {
		began, err := time.Now(), p.err
		if err == nil {
			err = p.client.Observe(ctx, q, func() {}, func(e *inspect.FlowEvent) error {
				select {
				case to <- nodeFlow{p.node, e}:
				case <-ctx.Done():
				}
				return nil
			})
		}
		if time.Since(began) > steadyTime {
			attempt = 1
		}
		switch {
		case ctx.Err() != nil:
			return
		case attempt > reconnectsMax, inspect.Refused(err):
			tell(fmt.Sprintf("not observed any more: %v", err))
			return
		}
		pause := reconnectPause << (attempt - 1)
		tell(fmt.Sprintf("%v; records are missing; next attempt in %v", err, pause))
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if found, err := c.pods(ctx, "spec.nodeName="+p.node); err == nil { // an update replaces the pod
			p = c.proxyOf(p.node, found[p.node])
		}
	}
}

// printMerged prints records and messages until there are no more.
func (f *flags) printMerged(to io.Writer, nodes []proxy, merged <-chan nodeFlow, told <-chan string) error {
	width := len("NODE")
	for _, p := range nodes {
		width = max(width, len(p.node))
	}
	table := f.Table()
	if table && !f.NoHeaders {
		fmt.Fprintf(to, "%-*s  ", width, "NODE")
		if err := inspect.PrintFlowHeads(to); err != nil {
			return err
		}
	}
	for {
		select {
		case text := <-told:
			fmt.Fprintln(f.errors, text)
		case e, more := <-merged:
			if !more {
				for len(told) > 0 {
					fmt.Fprintln(f.errors, <-told)
				}
				return nil
			}
			if err := f.printFlow(to, &e, width, table); err != nil {
				return err
			}
		}
	}
}

func (f *flags) printFlow(to io.Writer, e *nodeFlow, width int, table bool) error {
	switch {
	case f.Format == "json": // one line each
		return inspect.EncodeLine(to, e)
	case !table:
		fmt.Fprintln(to, "---")
	}
	return f.Print(to, e, func(to io.Writer) error {
		fmt.Fprintf(to, "%-*s  ", width, e.Node)
		return e.Print(to, f.Wide())
	})
}
