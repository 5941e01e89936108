// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

const (
	// reconnectsMax bounds the attempts to reconnect to a node: the first after reconnectPause, each further one after
	// twice the previous pause. After a stream that lasted for steadyTime, the attempts count from 1 again.
	reconnectsMax  = 5
	reconnectPause = time.Second
	steadyTime     = time.Minute
	// mergedMax bounds the records that wait for printing. At the bound, streams block, and nodes count what they drop.
	mergedMax = 1024
)

// Observation prints the records of connections of nodes, merged as they arrive.
type Observation struct {
	Targets []Target
	Query   inspect.FlowQuery
	Output  *inspect.Output
	// Renew returns the target of the same node after a failure. It is nil for one node, whose failure ends Run.
	Renew func(context.Context, *Target) Target

	width  int
	merged chan *FlowEvent
	heads  sync.Once
}

// FlowEvent is a record of a node. Node is empty if there is one node only.
type FlowEvent struct {
	Node string `json:"node,omitempty"`
	*inspect.FlowEvent
	width int
	// message is about the node, in place of a record. Without a message and a record, the heads of the columns are
	// printed.
	message string
}

// Print implements inspect.Answer.
func (e *FlowEvent) Print(to *terminal.Page) {
	if e.width > 0 {
		to.Say("%-*s  ", e.width, e.Node)
	}
	if e.FlowEvent == nil {
		inspect.PrintFlowHeads(to)
		return
	}
	e.FlowEvent.Print(to)
}

// Run prints records until the context ends, after which it returns nil, or until no node is left.
func (o *Observation) Run(outer context.Context, to io.Writer) (err error) {
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	o.merged = make(chan *FlowEvent, mergedMax)
	if o.Renew != nil {
		o.width = len("NODE")
		for i := range o.Targets {
			o.width = max(o.width, len(o.Targets[i].Node))
		}
	}
	var following sync.WaitGroup
	errs := make([]error, len(o.Targets))
	for i := range o.Targets {
		following.Go(func() { errs[i] = o.follow(ctx, o.Targets[i]) })
	}
	go func() {
		following.Wait()
		close(o.merged)
	}()
	for e := range o.merged { // until all have ended
		if err == nil {
			err = o.print(to, e)
		}
		if err != nil {
			cancel()
		}
	}
	switch {
	case err != nil:
		return err
	case o.Renew == nil:
		return errs[0]
	case outer.Err() != nil:
		return nil
	default:
		return fmt.Errorf("none of %s can be observed", plural.Of(len(o.Targets), "node"))
	}
}

// follow passes the records of a node on. After a failure it tries again, a few times.
func (o *Observation) follow(ctx context.Context, t Target) error {
	pass := func(e *FlowEvent) {
		if e.width = o.width; e.Node == "" && e.width > 0 {
			e.Node = t.Node
		}
		select {
		case o.merged <- e:
		case <-ctx.Done():
		}
	}
	for attempt := 1; ; attempt++ {
		began, err := time.Now(), t.Err
		if err == nil {
			err = t.Client.Observe(ctx, o.Query, func() { o.heads.Do(func() { pass(&FlowEvent{Node: "NODE"}) }) }, func(e *inspect.FlowEvent) error {
				pass(&FlowEvent{FlowEvent: e})
				return nil
			})
		}
		if time.Since(began) > steadyTime {
			attempt = 1
		}
		switch {
		case ctx.Err() != nil || o.Renew == nil:
			return err
		case attempt > reconnectsMax, inspect.Refused(err):
			pass(&FlowEvent{message: fmt.Sprintf("not observed any more: %v", err)})
			return err
		}
		pause := reconnectPause << (attempt - 1)
		pass(&FlowEvent{message: fmt.Sprintf("%v; records are missing; next attempt in %v", err, pause)})
		if !sleep.For(ctx, pause) {
			return nil
		}
		t = o.Renew(ctx, &t)
	}
}

// print prints a record or a message as it comes.
func (o *Observation) print(to io.Writer, e *FlowEvent) error {
	switch table := o.Output.Table(); {
	case e.message != "":
		_, err := fmt.Fprintf(o.Output.Notes, "%s: %s\n", e.Node, e.message)
		return err
	case e.FlowEvent == nil && (!table || o.Output.NoHeaders):
		return nil
	case o.Output.Format == "json": // one line each
		return inspect.EncodeLine(to, e)
	case !table:
		fmt.Fprintln(to, "---")
	}
	return o.Output.Print(to, e)
}
