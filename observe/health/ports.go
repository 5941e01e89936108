// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"math"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/mailbox"
	"github.com/sluice-proxy/sluice/observe/web"
	"github.com/sluice-proxy/sluice/service"
)

// PortsConfig configures Ports. Every field is required.
type PortsConfig struct {
	// Healthy reports whether the proxy is healthy, usually Monitor.Healthy.
	Healthy func() bool
	// NodePorts returns the addresses on which node ports of a family answer now; see
	// service.NodeFacts. Ports call it whenever a Service is programmed. It must not block.
	NodePorts func(service.Family) service.NodePortAddresses
	// Failed receives a failure to open the port of a Service, for the event
	// FailedToStartServiceHealthcheck. It must not block. While a failure lasts, Failed receives it
	// again, at most once a second and eventually once a minute.
	Failed func(key service.Key, err error)
	Log    *zap.Logger
}

// Ports keeps the health-check node ports: one HTTP listener per Service that asks for it, family
// and address. It tells a balancer whether this node has endpoints of the Service. Its Programmed
// is for a proxy.ApplyObserver, so ports open, move and close once the kernel serves the Service that
// way, and not before.
type Ports struct {
	config PortsConfig
	// inbox is bounded by the number of Services' actors.
	inbox *mailbox.Mailbox[checkKey, wish]
	// lost receives the outlets that have ended by themselves, with the reason.
	lost    *mailbox.Mailbox[*outlet, error]
	serving sync.WaitGroup
	limit   *web.Limit
	// listen is web.Listen, except in tests.
	listen func(ctx context.Context, network, address string) (net.Listener, error)

	// Run owns the following. waiting holds the checks that are not complete.
	checks  map[checkKey]*check
	waiting map[*check]struct{}
}

// NewPorts makes Ports; Run starts them.
func NewPorts(config PortsConfig) *Ports {
	return &Ports{
		config:  config,
		inbox:   mailbox.New[checkKey, wish](math.MaxInt, nil),
		lost:    mailbox.New[*outlet, error](math.MaxInt, nil),
		limit:   web.NewLimit(),
		listen:  web.Listen,
		checks:  map[checkKey]*check{},
		waiting: map[*check]struct{}{},
	}
}

// Programmed records how the kernel serves a Service in one family. It does not block.
func (p *Ports) Programmed(_ context.Context, family service.Family, view service.View) {
	p.inbox.Post(checkKey{family, view.Key}, wish{port: view.HealthPort(family), ready: view.ReadyLocal[family]})
}

// Run keeps the ports until the context ends, closes them, and returns nil.
func (p *Ports) Run(ctx context.Context) error {
	defer p.end()
	alarm := time.NewTimer(math.MaxInt64)
	defer alarm.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.inbox.Wake():
			p.take(time.Now())
		case <-p.lost.Wake():
			p.reopen(time.Now())
		case <-alarm.C:
			p.retry(time.Now(), false)
		}
		alarm.Reset(p.pause(time.Now()))
	}
}

// take applies the new wishes. It closes before it opens: a port may have passed from one Service
// to another.
func (p *Ports) take(now time.Time) {
	entries, _ := p.inbox.Take()
	var changed []*check
	closed := false
	for _, e := range entries {
		c := p.checks[e.Key]
		if c == nil {
			if e.Message.port == 0 {
				continue
			}
			c = &check{checkKey: e.Key, open: map[netip.Addr]*outlet{}}
			p.checks[e.Key] = c
		}
		closed = c.want(e.Message, p.addresses(e.Key.family)) || closed
		delete(p.waiting, c)
		if e.Message.port == 0 {
			delete(p.checks, e.Key)
			continue
		}
		if !c.complete() {
			changed = append(changed, c)
		}
	}
	for _, c := range changed {
		p.open(now, c)
	}
	if closed {
		p.retry(now, true)
	}
}

// addresses returns where the ports of a family listen. The unspecified address of a family stands
// for all addresses of that family and none of the other.
func (p *Ports) addresses(family service.Family) []netip.Addr {
	served := p.config.NodePorts(family)
	switch {
	case !served.All && served.Loopback && !slices.ContainsFunc(served.Addresses, netip.Addr.IsLoopback):
		return append(slices.Clone(served.Addresses), service.Loopback[family])
	case !served.All:
		return served.Addresses
	case family == service.IPv6:
		return []netip.Addr{netip.IPv6Unspecified()}
	default:
		return []netip.Addr{netip.IPv4Unspecified()}
	}
}

// retry tries again what is due, or everything.
func (p *Ports) retry(now time.Time, everything bool) {
	for c := range p.waiting {
		if everything || !now.Before(c.retryAt) {
			p.open(now, c)
		}
	}
}

// pause returns the time until the next retry.
func (p *Ports) pause(now time.Time) time.Duration {
	next := time.Duration(math.MaxInt64)
	for c := range p.waiting {
		next = min(next, max(0, c.retryAt.Sub(now)))
	}
	return next
}

// open makes one attempt to complete a check.
func (p *Ports) open(now time.Time, c *check) {
	err := c.tryOpen(p.openOutlet)
	if err == nil {
		delete(p.waiting, c)
		p.config.Log.Debug("health-check node port open", p.fields(c)...)
		return
	}
	p.waiting[c] = struct{}{}
	first := c.pause == 0
	if !c.failed(now) {
		return
	}
	// A port that passes from one Service to another has two owners until the first one's actor
	// has its turn. That is not a failure, unless it lasts.
	if first && errors.Is(err, unix.EADDRINUSE) && p.contested(c) {
		return
	}
	p.config.Log.Error("cannot open health-check node port; retrying",
		append(p.fields(c), zap.Error(err), zap.Duration("duration", c.pause))...)
	p.config.Failed(c.key, err)
}

// contested reports whether the port of a check is open for another Service.
func (p *Ports) contested(c *check) bool {
	for _, other := range p.checks {
		if other != c && other.family == c.family && other.wish.port == c.wish.port && len(other.open) > 0 {
			return true
		}
	}
	return false
}

// openOutlet listens at one address and starts a server there.
func (p *Ports) openOutlet(c *check, at netip.AddrPort) (*outlet, error) {
	network := "tcp4"
	if c.family == service.IPv6 {
		network = "tcp6" // package net makes it IPv6 only
	}
	listener, err := p.listen(context.Background(), network, at.String())
	if err != nil {
		return nil, err
	}
	o := &outlet{check: c, server: web.ProbeServer(c.handler(p.config.Healthy))}
	o.listener = p.limit.Bound(o.server, listener)
	web.LogErrors(o.server, p.config.Log)
	p.serving.Go(func() {
		if err := o.serve(); err != nil {
			p.lost.Post(o, err)
		}
	})
	return o, nil
}

// reopen schedules outlets that have ended by themselves to open again after a pause.
func (p *Ports) reopen(now time.Time) {
	entries, _ := p.lost.Take()
	for _, e := range entries {
		o := e.Key
		o.close()
		for addr, held := range o.check.open {
			if held == o { // and not closed since
				delete(o.check.open, addr)
				o.check.failed(now)
				p.waiting[o.check] = struct{}{}
				p.config.Log.Warn("health-check node port stopped listening; retrying", append(p.fields(o.check), zap.Error(e.Message))...)
			}
		}
	}
}

// end closes everything and waits for the servers.
func (p *Ports) end() {
	p.inbox.Close()
	for _, c := range p.checks {
		c.closeAll()
	}
	p.serving.Wait()
}

func (p *Ports) fields(c *check) []zap.Field {
	return []zap.Field{zap.Stringer("service", c.key), zap.Stringer("family", c.family), zap.Uint16("port", c.wish.port)}
}
