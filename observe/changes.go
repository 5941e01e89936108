package observe

import (
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/service"
)

// ChangeLevel is the level of the lines about changes of Services in force. Levels below zap's debug
// level are verbosities of klog: these lines appear with -v=2, as kube-proxy's about its syncs do.
const ChangeLevel zapcore.Level = -2

// changes knows how the newest fragment of each Service got into the kernel, until the view that it
// was made of is known to be in force.
type changes struct {
	mu sync.Mutex
	// batch is the newest one by domain; 0 after an audit.
	batch map[string]uint64
	of    map[changeOf]change
}

type changeOf struct {
	key    service.Key
	family service.Family
}

type change struct {
	domain string
	batch  uint64
	// took counts from the receipt of the change; 0 if that is not known.
	took time.Duration
}

// wrote notes the newest batch of a domain; 0 stands for an audit. Its Services are told next.
func (c *changes) wrote(domain string, batch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.batch == nil {
		c.batch, c.of = map[string]uint64{}, map[changeOf]change{}
	}
	c.batch[domain] = batch
}

func (c *changes) applied(e aggregator.Applied, family service.Family) {
	made := change{domain: e.Domain}
	if !e.Received.IsZero() {
		made.took = e.At.Sub(e.Received)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	made.batch = c.batch[e.Domain]
	if c.of != nil {
		c.of[changeOf{e.Key, family}] = made
	}
}

func (c *changes) take(key service.Key, family service.Family) change {
	c.mu.Lock()
	defer c.mu.Unlock()
	made := c.of[changeOf{key, family}]
	delete(c.of, changeOf{key, family})
	return made
}

// forget drops what is known of a Service.
func (c *changes) forget(key service.Key) {
	for _, family := range service.Families {
		c.take(key, family)
	}
}

// Programmed logs that a Service is served as a view says, in one family. It implements
// proxy.Follower.
func (l *Log) Programmed(family service.Family, view service.View) {
	made := l.changes.take(view.Key, family)
	entry := l.log.Check(ChangeLevel, "Service change in force")
	if entry == nil {
		return
	}
	endpoints := 0
	for i := range view.Ports[family] {
		endpoints += len(view.Ports[family][i].Reachable())
	}
	fields := []zap.Field{zap.Stringer("service", view.Key), zap.Stringer("family", family),
		zap.Int("ports", len(view.Ports[family])), zap.Int("endpoints", endpoints)}
	if made.took > 0 {
		fields = append(fields, zap.Duration("took", made.took.Round(time.Microsecond)))
	}
	if made.domain != "" {
		fields = append(fields, zap.String("domain", made.domain))
	}
	if made.batch > 0 {
		fields = append(fields, zap.Uint64("batch", made.batch))
	}
	entry.Write(fields...)
}
