// SPDX-License-Identifier: Apache-2.0

// Package cleaner deletes flows that no longer lead where their Service leads.
//
// The kernel translates the first packet of a flow and remembers the result (conntrack)
// as long as packets arrive. A UDP client that keeps its socket would therefore stay with
// an endpoint that is gone, or without any translation. TCP ends by itself, except for
// unanswered connections: their packets bypass the rules again and again. A Service may ask that connections of all
// protocols to endpoints that have left end at a deadline (drains.go).
//
// The root package passes each view of a Service to a [Cleaner] once the kernel's rules
// follow it, never before: a flow deleted too early would come back by the old rules. It
// passes the view a first time before the rules are written, as the flows that begin by
// them are not stale although the cleaner may not know yet that they are applied. The
// cleaner then sweeps: it reads the flows of the frontends concerned from the kernel,
// judges each as it arrives, and deletes the stale ones. It forgets a view only when a
// sweep has dealt with it.
//
//	actors ──► table of the family ◄──► sweep ◄──► kernel
//	  pictures                       at a pace
//
// docs/adr/0008-conntrack.md says what is stale and why, and where that differs from
// kube-proxy.
package cleaner

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// Config configures a Cleaner.
type Config struct {
	// NodePorts returns the addresses on which node ports of a family answer now; see
	// service.NodeFacts. Several goroutines call it, at the start of each sweep. It must
	// not block.
	NodePorts func(service.Family) service.NodePortAddresses
	// Owner returns the Service that has a frontend by the newest API objects; nil if nobody knows. Both families call it
	// during sweeps. It must not block.
	Owner func(service.Family, service.Frontend) (service.Key, bool)
	// Gather is how long a change waits for others that share its sweep. Default 20 ms;
	// a negative value does not wait.
	Gather time.Duration
	// Listen receives what happens, from one goroutine per family. It must not block.
	Listen func(Swept)
	// Drains says to cut connections to endpoints that have left Services with a drain deadline (service.View.Drain).
	Drains bool
	// Inside runs a function on a thread in the network namespace to work in.
	// Default: the process's own namespace.
	Inside func(func() error) error
}

const gatherDefault = 20 * time.Millisecond

func (c Config) withDefaults() Config {
	if c.Gather == 0 {
		c.Gather = gatherDefault
	}
	if c.Listen == nil {
		c.Listen = func(Swept) {}
	}
	if c.Inside == nil {
		c.Inside = func(f func() error) error { return f() }
	}
	return c
}

// Cleaner deletes stale flows of both families. The families do not wait for each
// other. Its functions make a proxy.ApplyObserver.
type Cleaner struct {
	families service.PerFamily[*familyCleaner]
	drains   bool
}

// New returns a cleaner. It touches nothing until Run.
func New(config Config) (*Cleaner, error) {
	if config.NodePorts == nil {
		return nil, errors.New("conntrack cleaner: NodePorts is required: the addresses on which node ports respond")
	}
	config = config.withDefaults()
	c := &Cleaner{drains: config.Drains}
	for _, family := range service.Families {
		c.families[family] = newFamilyCleaner(family, config)
	}
	return c, nil
}

// Submitted records that the kernel may serve a Service of one family as the view says
// from now on. It does not block.
func (c *Cleaner) Submitted(ctx context.Context, family service.Family, view service.View) {
	c.put(ctx, family, &view, false)
}

// Programmed records that the kernel serves a Service of one family as the view says. It
// does not block. A view without ports of the family means that the Service is no longer served.
func (c *Cleaner) Programmed(ctx context.Context, family service.Family, view service.View) {
	c.put(ctx, family, &view, true)
}

func (c *Cleaner) put(ctx context.Context, family service.Family, view *service.View, applied bool) {
	if p := newPicture(ctx, family, view, c.drains); ctx.Err() == nil { // otherwise the actor's replacement reports the view
		c.families[family].put(view.Key, p, applied)
	}
}

// Repaired records that rules of a family were missing or wrong and are applied again. It
// makes the next sweep and some after it judge the flows of all frontends: a client that sent
// meanwhile is not translated, and would stay so as long as it goes on sending. It does not block.
func (c *Cleaner) Repaired(family service.Family) {
	c.families[family].repaired.Store(true)
	c.families[family].call()
}

// Run works until the context ends, and then returns nil. It reports what fails to the
// listener and tries again.
//
// A restart of the process has nothing to restore: the first view of each Service makes a
// sweep judge its flows, so that those that went stale meanwhile go and the others stay.
func (c *Cleaner) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, k := range c.families {
		running.Go(func() { k.run(ctx) })
	}
	running.Wait()
	return nil
}

// Swept is the result of one pass over the kernel's flows.
type Swept struct {
	Family service.Family
	// Flows counts the flows that the kernel listed.
	Flows int
	// Deleted counts the deleted flows, and Services those that each Service's change
	// made stale. Services is nil if nothing was deleted.
	Deleted  int
	Services map[service.Key]int
	// Cut is what drain deadlines ended. Deleted and Services count it, too.
	Cut []Cut
	// Took is the time from the start of the sweep to its end.
	Took time.Duration
	// Err is why the sweep will be repeated; nil if it did everything.
	Err error
	// Failures counts the sweeps that failed since the last success, including this one.
	Failures int
}

// Cut says which connections of a Service were ended because their endpoints had left.
type Cut struct {
	Service     service.Key
	Endpoints   []netip.AddrPort
	Connections int
	// Deadline has passed for all endpoints but Crowded ones, which were the oldest of too many.
	Deadline time.Duration
	Crowded  int
}
