// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/service"
)

// ChangeLevel is the level of the lines about changes of Services applied. Levels below zap's debug
// level are verbosities of klog: these lines appear with -v=2, as kube-proxy's about its syncs do.
const ChangeLevel zapcore.Level = -2

// changes records how the newest fragment of each Service got into the kernel, until Programmed reports that its view
// is applied. While changes are logged, it also records what was logged last.
type changes struct {
	mu sync.Mutex
	// told are the ports in the newest line about a Service, which has at least one.
	told map[changeOf][]service.PortView
	of   map[changeOf]change
}

type changeOf struct {
	key    service.Key
	family service.Family
}

type change struct {
	domain string
	// batch is 0 if nothing had to be written.
	batch uint64
	// took counts from the receipt of the change; 0 if that is not known.
	took time.Duration
}

func (c *changes) applied(e aggregator.Applied, family service.Family) {
	made := change{domain: e.Domain, batch: e.Batch}
	if !e.Received.IsZero() {
		made.took = e.At.Sub(e.Received)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[changeOf]change{}
	}
	c.of[changeOf{e.Key, family}] = made
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
		c.tell(changeOf{key, family}, nil)
	}
}

// tell records the ports of the next line and returns those of the line before it; nil if there was
// none.
func (c *changes) tell(at changeOf, ports []service.PortView) (before []service.PortView) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before = c.told[at]
	if len(ports) == 0 {
		delete(c.told, at)
		return before
	}
	if c.told == nil {
		c.told = map[changeOf][]service.PortView{}
	}
	c.told[at] = ports
	return before
}

// Programmed logs that a Service is served as a view says, in one family, and which endpoints that
// adds and removes. It is for a proxy.ApplyObserver.
func (l *Log) Programmed(_ context.Context, family service.Family, view service.View) {
	made := l.changes.take(view.Key, family)
	if !l.log.Core().Enabled(ChangeLevel) {
		l.changes.tell(changeOf{view.Key, family}, nil) // or a later line would compare with it
		return
	}
	ports := view.Ports[family]
	before := l.changes.tell(changeOf{view.Key, family}, ports)
	if len(ports) == 0 && len(before) == 0 {
		return // it does not have this family
	}
	fields := []zap.Field{zap.Stringer("service", view.Key), zap.Stringer("family", family)}
	message := "Service deleted"
	if slices.ContainsFunc(service.Families[:], func(f service.Family) bool { return len(view.Ports[f]) > 0 }) {
		message = "Service change applied"
		fields = append(fields, endpointFields(before, ports)...)
	}
	if made.took > 0 {
		fields = append(fields, zap.Duration("took", made.took.Round(time.Microsecond)))
	}
	if made.domain != "" {
		fields = append(fields, zap.String("domain", made.domain))
	}
	if made.batch > 0 {
		fields = append(fields, zap.Uint64("batch", made.batch))
	}
	l.log.Log(ChangeLevel, message, fields...)
}

// examplesMax is how many endpoints a line names as added, and as removed.
const examplesMax = 5

// endpointFields says how many ports and endpoints there are, and how the endpoints differ from those
// before. A first line names none: all of them are new to the log, not to the Service.
func endpointFields(before, after []service.PortView) []zap.Field {
	old, count := endpointsOf(before), 0
	for i := range after {
		count += len(after[i].Reachable())
	}
	fields := []zap.Field{zap.Int("ports", len(after)), zap.Int("endpoints", count)}
	if before == nil {
		return fields
	}
	now := endpointsOf(after)
	fields = append(fields, examples("added", without(now, old))...)
	return append(fields, examples("removed", without(old, now))...)
}

// endpointsOf lists the endpoints of all ports, sorted, each once.
func endpointsOf(ports []service.PortView) (all []string) {
	for i := range ports {
		for _, e := range ports[i].Reachable() {
			all = append(all, e.String())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// without lists what is in one sorted list and not in another.
func without(list, other []string) (rest []string) {
	for _, e := range list {
		if _, found := slices.BinarySearch(other, e); !found {
			rest = append(rest, e)
		}
	}
	return rest
}

// examples names the first of the endpoints, and counts the others.
func examples(name string, all []string) []zap.Field {
	if len(all) == 0 {
		return nil
	}
	fields := []zap.Field{zap.Strings(name, all[:min(len(all), examplesMax)])}
	if more := len(all) - examplesMax; more > 0 {
		fields = append(fields, zap.Int(name+"More", more))
	}
	return fields
}
