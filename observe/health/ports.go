package health

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/mailbox"
	"github.com/sluice-proxy/sluice/service"
)

// PortsConfig is what Ports are made of. Every field may be left out.
type PortsConfig struct {
	// Healthy tells whether the proxy is healthy, usually Monitor.Healthy. Nil,
	// for a proxy without a health server, means that it always is.
	Healthy func() bool
	// NodePorts tells on which addresses node ports of a family answer now; see
	// service.NodeFacts. It is asked whenever a Service is programmed, and must
	// not block. Nil means on all.
	NodePorts func(service.Family) service.NodePortAddresses
	// Failed is told that the port of a Service could not be opened, for the
	// event FailedToStartServiceHealthcheck; it must not block. It is told again
	// while that lasts, at most once a second and in the end once a minute.
	Failed func(key service.Key, err error)
	// Inside runs a function on a thread in the network namespace to listen in.
	// Default: the process's own namespace.
	Inside func(func() error) error
	// Log is nil for no log.
	Log *zap.Logger
}

func (c PortsConfig) withDefaults() PortsConfig {
	if c.Healthy == nil {
		c.Healthy = func() bool { return true }
	}
	if c.NodePorts == nil {
		c.NodePorts = func(service.Family) service.NodePortAddresses { return service.NodePortAddresses{All: true} }
	}
	if c.Failed == nil {
		c.Failed = func(service.Key, error) {}
	}
	if c.Inside == nil {
		c.Inside = here
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// Ports keeps the health-check node ports: one HTTP listener per Service that
// asks for it, family and address, which tells a balancer whether this node has
// endpoints of the Service. It implements proxy.Follower, so ports open, move
// and close once the kernel serves the Service that way, and not before.
type Ports struct {
	config PortsConfig
	// inbox is bounded by the number of Services' actors.
	inbox *mailbox.Mailbox[place, wish]
	// lost tells which outlets have ended by themselves, and why.
	lost    *mailbox.Mailbox[*outlet, error]
	serving sync.WaitGroup

	// Owned by Run. Waiting are the checks that are not complete.
	checks  map[place]*check
	waiting map[*check]struct{}
}

// NewPorts makes Ports; Run starts them.
func NewPorts(config PortsConfig) *Ports {
	return &Ports{
		config:  config.withDefaults(),
		inbox:   mailbox.New[place, wish](math.MaxInt, nil),
		lost:    mailbox.New[*outlet, error](math.MaxInt, nil),
		checks:  map[place]*check{},
		waiting: map[*check]struct{}{},
	}
}

// Programmed takes note that the kernel serves a Service as the view says, in one
// family. It does not block.
func (p *Ports) Programmed(family service.Family, view service.View) {
	p.inbox.Post(place{family, view.Key}, wish{port: view.HealthPort(family), ready: view.ReadyLocal[family]})
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
			p.mourn(time.Now())
		case <-alarm.C:
			p.retry(time.Now(), false)
		}
		alarm.Reset(p.pause(time.Now()))
	}
}

// take carries out what the Services' actors have said. What is to be closed is
// closed first: a port may have passed from one Service to another.
func (p *Ports) take(now time.Time) {
	entries, _ := p.inbox.Take(0)
	var changed []*check
	closed := false
	for _, e := range entries {
		c := p.checks[e.Key]
		if c == nil {
			if e.Message.port == 0 {
				continue
			}
			c = &check{place: e.Key, open: map[netip.Addr]*outlet{}}
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

// addresses are where the ports of a family listen. The unspecified address of a
// family stands for all of that family and none of the other.
func (p *Ports) addresses(family service.Family) []netip.Addr {
	served := p.config.NodePorts(family)
	switch {
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

// pause is the time until something is to be tried again.
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
	// A port that passes from one Service to another has two owners until the
	// first one's actor has its turn. That is nobody's failure, unless it lasts.
	if first && errors.Is(err, unix.EADDRINUSE) && p.rival(c) {
		return
	}
	p.config.Log.Error("health-check node port cannot be opened; trying again",
		append(p.fields(c), zap.Error(err), zap.Duration("after", c.pause))...)
	p.config.Failed(c.key, err)
}

// rival tells whether the port of a check is open for another Service.
func (p *Ports) rival(c *check) bool {
	for _, other := range p.checks {
		if other != c && other.family == c.family && other.wish.port == c.wish.port && len(other.open) > 0 {
			return true
		}
	}
	return false
}

// openOutlet listens at one address and lets a server answer there.
func (p *Ports) openOutlet(c *check, at netip.AddrPort) (*outlet, error) {
	network := "tcp4"
	if c.family == service.IPv6 {
		network = "tcp6" // package net makes it IPv6 only
	}
	listener, err := listen(p.config.Inside, network, at)
	if err != nil {
		return nil, err
	}
	o := &outlet{check: c, listener: listener, server: newHTTPServer(c.handler(p.config.Healthy), p.config.Log)}
	p.serving.Go(func() {
		if err := o.serve(); err != nil {
			p.lost.Post(o, err)
		}
	})
	return o, nil
}

// mourn takes note of outlets that have ended by themselves: they are opened
// anew, after a pause.
func (p *Ports) mourn(now time.Time) {
	entries, _ := p.lost.Take(0)
	for _, e := range entries {
		o := e.Key
		o.close()
		for addr, held := range o.check.open {
			if held == o { // and not closed since
				delete(o.check.open, addr)
				o.check.failed(now)
				p.waiting[o.check] = struct{}{}
				p.config.Log.Warn("health-check node port lost its socket", append(p.fields(o.check), zap.Error(e.Message))...)
			}
		}
	}
}

// end closes everything, and waits until nobody serves.
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
