package aggregator

import (
	"fmt"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
)

// Config is what an Aggregator is made of.
type Config struct {
	// Domain names what the writer commits, for example "iptables/IPv4".
	Domain string
	Writer dataplane.Writer
	// Layout is nil in domains that can change single elements.
	Layout dataplane.Layout
	// Naming reads the identities of the domain's objects; see dataplane.Renderer.
	Naming dataplane.Naming
	Pace   Pace
	// GateWait is how long the first write waits for keys that the source has
	// named and that have not submitted, since the last one that did. Default
	// 10 s.
	GateWait time.Duration
	// MayWrite, when set, is closed once this process may read and write the kernel's
	// rules: before that, somebody else has them.
	MayWrite <-chan struct{}
	// WriteTimeout bounds one write and one read. Default 2 min.
	WriteTimeout time.Duration
	// Verdicts receives the answers; it must not block.
	Verdicts func(dataplane.Verdict)
	// Listen is told what happens, by the aggregator's goroutine; it must not
	// block. Nil listens to nothing.
	Listen func(Event)
}

func (c Config) withDefaults() Config {
	defaulted(&c.GateWait, 10*time.Second)
	defaulted(&c.WriteTimeout, 2*time.Minute)
	if c.Listen == nil {
		c.Listen = func(Event) {}
	}
	if c.Verdicts == nil {
		c.Verdicts = func(dataplane.Verdict) {}
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Domain == "":
		return fmt.Errorf("aggregator: a domain needs a name")
	case c.Writer == nil:
		return fmt.Errorf("aggregator %s: a domain needs a writer", c.Domain)
	case c.GateWait < 0 || c.WriteTimeout < 0:
		return fmt.Errorf("aggregator %s: gate wait %v, write timeout %v: want no negative times", c.Domain, c.GateWait, c.WriteTimeout)
	}
	if err := c.Pace.Validate(); err != nil {
		return fmt.Errorf("aggregator %s: %w", c.Domain, err)
	}
	return nil
}
