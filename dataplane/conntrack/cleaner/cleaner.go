// SPDX-License-Identifier: Apache-2.0

// Package cleaner deletes stale flows from the kernel's connection table.
//
// The kernel translates the first packet of a flow, and applies the same translation to later packets (conntrack) while
// packets arrive. So a UDP client that keeps its socket would stay with a removed endpoint, or without translation. TCP
// connections end, except for unanswered ones, whose packets bypass the rules again and again. A Service may have a
// drain deadline, at which connections of all protocols to removed endpoints end (drains.go).
//
// Package proxy passes each view of a Service to a [Cleaner] after the kernel's rules match it, and never before: a
// flow that is deleted too early begins again by the old rules. It also passes the view before the rules are written,
// because flows that begin by the new rules are not stale, although the cleaner may not know yet that the rules are
// applied. Then the cleaner sweeps: it reads the flows of the affected frontends from the kernel, judges each one as it
// arrives, and deletes the stale ones. A change remains pending until a sweep succeeds.
//
//	actors ──► table of the family ◄──► sweep ◄──► kernel
//	  pictures                       at a pace
//
// docs/adr/0008-conntrack.md defines stale flows, with the reasons and the differences from kube-proxy.
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
	// NodePorts returns the present addresses of node ports of a family; see service.NodeFacts. Several goroutines call
	// it, at the start of each sweep. It must not block.
	NodePorts func(service.Family) service.NodePortAddresses
	// Owner returns the Service that owns a frontend according to the newest API objects. It may be nil. The sweeps of
	// both families call it. It must not block.
	Owner func(service.Family, service.Frontend) (service.Key, bool)
	// Gather is the time for which a change waits for further changes, to share a sweep. The default is 20 ms. With a
	// negative value, changes do not wait.
	Gather time.Duration
	// Listen receives the result of each sweep, from one goroutine per family. It must not block.
	Listen func(Swept)
	// Drains enables drain deadlines of Services (service.View.Drain): the cleaner cuts connections to removed endpoints.
	Drains bool
	// Inside runs a function on a thread in the network namespace of the table. The default is that of the process.
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
	return c
}

// Cleaner deletes stale flows of both families, which do not wait for each other. Its methods form a
// proxy.ApplyObserver.
type Cleaner struct {
	families service.PerFamily[*familyCleaner]
	drains   bool
}

// New returns a cleaner, which does nothing until Run.
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

// Submitted records that the kernel's rules of one family may match the view from now on. It does not block.
func (c *Cleaner) Submitted(ctx context.Context, family service.Family, view service.View) {
	c.put(ctx, family, &view, false)
}

// Programmed records that the kernel's rules of one family match the view. It does not block. A view without ports of
// the family means that the Service is no longer served.
func (c *Cleaner) Programmed(ctx context.Context, family service.Family, view service.View) {
	c.put(ctx, family, &view, true)
}

func (c *Cleaner) put(ctx context.Context, family service.Family, view *service.View, applied bool) {
	if p := newPicture(ctx, family, view, c.drains); ctx.Err() == nil { // otherwise the actor's replacement reports the view
		c.families[family].put(view.Key, p, applied)
	}
}

// Repaired records that rules of a family were missing or wrong, and are applied again. The next sweep and some further
// ones judge the flows of all frontends: a client that sent packets before the repair is not translated, and would
// remain so while it sends. It does not block.
func (c *Cleaner) Repaired(family service.Family) {
	c.families[family].repaired.Store(true)
	c.families[family].call()
}

// Run works until the context ends, and then returns nil. It reports failures to the listener, and retries.
//
// After a restart, nothing needs to be restored: for the first view of each Service, a sweep judges the flows of the
// Service, and deletes those that became stale while no process ran.
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
	// Deleted counts the deleted flows. Services counts them by the Service whose change made them stale. It is nil if
	// none was deleted.
	Deleted  int
	Services map[service.Key]int
	// Cut contains the connections that ended at drain deadlines. Deleted and Services count them, too.
	Cut []Cut
	// Took is the duration of the sweep.
	Took time.Duration
	// Err is the reason for a repetition of the sweep; nil if the sweep is complete.
	Err error
	// Failures counts the sweeps that failed since the last success, including this one.
	Failures int
}

// Cut contains the connections of a Service that ended because their endpoints were removed.
type Cut struct {
	Service     service.Key
	Endpoints   []netip.AddrPort
	Connections int
	// Deadline has passed for all endpoints except Crowded ones, which were the oldest of too many.
	Deadline time.Duration
	Crowded  int
}
