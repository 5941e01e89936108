package conntrack

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// Config is what a Cleaner is made of.
type Config struct {
	// NodePorts tells on which addresses node ports of a family answer now; see
	// service.NodeFacts. It is asked at the start of each sweep, by several
	// goroutines, and must not block.
	NodePorts func(service.Family) service.NodePortAddresses
	// Gather is how long a change waits for others that share its sweep.
	// Default 20 ms; a negative one does not wait.
	Gather time.Duration
	// Grace is how long flows stay whose endpoint is gone and was the last. Default
	// 3 s; a negative one cuts them at once.
	Grace time.Duration
	// Listen is told what happens, by one goroutine per family; it must not
	// block. Nil listens to nothing.
	Listen func(Event)
	// Inside runs a function on a thread in the network namespace to work in.
	// Default: the process's own namespace.
	Inside func(func() error) error
}

const (
	gatherDefault = 20 * time.Millisecond
	graceDefault  = 3 * time.Second
)

func (c Config) withDefaults() Config {
	if c.Gather == 0 {
		c.Gather = gatherDefault
	}
	if c.Grace == 0 {
		c.Grace = graceDefault
	}
	if c.Listen == nil {
		c.Listen = func(Event) {}
	}
	if c.Inside == nil {
		c.Inside = func(f func() error) error { return f() }
	}
	return c
}

// Cleaner removes stale UDP flows of both families. The families do not wait for
// each other. It implements proxy.Follower
// and proxy.Mender.
type Cleaner struct {
	keepers service.PerFamily[*keeper]
}

// New makes a cleaner; Run starts it. Nothing is touched before that.
func New(config Config) (*Cleaner, error) {
	if config.NodePorts == nil {
		return nil, errors.New("conntrack: NodePorts is missing: which flows are those of a node port depends on the address")
	}
	config = config.withDefaults()
	c := &Cleaner{}
	for _, family := range service.Families {
		c.keepers[family] = newKeeper(family, config)
	}
	return c, nil
}

// Programmed takes note that the kernel serves a Service as the view says, in one
// family. It does not block. A later view of the Service takes the place of one that
// waits; a view without ports of the family says that the Service is not served any
// more.
func (c *Cleaner) Programmed(family service.Family, view service.View) {
	c.keepers[family].inbox.Post(view.Key, newPicture(family, &view))
}

// Repaired takes note that rules of a family were missing or wrong, for whatever
// reason, and are in force again: the flows of all frontends are judged anew. A client
// that has sent meanwhile is not translated, and would not be as long as it goes on.
// It does not block.
func (c *Cleaner) Repaired(family service.Family) {
	c.keepers[family].inbox.Post(service.Node, picture{repaired: true})
}

// Run works until the context ends, and then returns nil. What it cannot do it
// tells the listener, and tries again.
//
// After a restart of the process there is nothing to restore: each Service's first
// view has its flows judged, so that those which went stale meanwhile go and the
// others stay.
func (c *Cleaner) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, k := range c.keepers {
		running.Go(func() { k.run(ctx) })
	}
	running.Wait()
	return nil
}
