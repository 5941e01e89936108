// SPDX-License-Identifier: Apache-2.0

// Package traces exports the path of a change as OpenTelemetry spans: watch, actor, render, batch and kernel, with
// write and ack. [Traces] is a listener. It makes spans of events that the core announces anyway, after a change is
// applied or rejected. So without it, a change costs nothing more. With it, a change costs the digest of a few bytes,
// and a place in a bounded queue if it is sampled. One goroutine makes and sends spans. See docs/monitoring.md and
// docs/design/observation.md.
package traces

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
)

const (
	// queueMax bounds the changes that wait for the exporter, batchMax the changes of one request.
	queueMax, batchMax = 1024, 256
	// pause is the longest time that a change waits for others of its request.
	pause = 2 * time.Second
	// requestMax bounds a request, stopMax the last one.
	requestMax, stopMax = 5 * time.Second, time.Second
)

// Config configures Traces.
type Config struct {
	// Endpoint is the URL of an OTLP receiver over HTTP, without the path.
	Endpoint string
	// PerMillion is the rate of sampled traces. Changes that take longer than Slow, or that the kernel rejects, are
	// always sampled.
	PerMillion int32
	Slow       time.Duration
	// Seed and a trace's ID decide whether the trace is sampled, so that only those who know the seed can choose
	// traces. Nodes with the same seed sample the same traces. With 0, each process has a random seed.
	Seed uint32
	// Mode, Node and Version describe the process, Domains the families of its domains.
	Mode, Node, Version string
	Domains             map[string]service.Family
	// Failed receives errors of requests. It must not block.
	Failed func(error)
}

// Traces is a listener that exports spans.
type Traces struct {
	config  Config
	ratio   sdktrace.Sampler
	key     [16]byte // of the choice
	began   time.Time
	domains map[string]*domain
	queue   chan change
	dropped atomic.Uint64
	// stopMax bounds the last request.
	stopMax time.Duration

	// The following belongs to Run.
	exporter *otlptrace.Exporter
	tracer   trace.Tracer
	ids      *ids
	made     *made
	changes  uint64 // those of made
}

// domain contains the last write of a domain, whose aggregator owns it.
type domain struct {
	write write
	// rejected contains the contributions of a write that did not land.
	rejected []dataplane.Contribution
}

// write is what spans show of a write.
type write struct {
	number   uint64
	services int
	written  dataplane.Written
	took     time.Duration
}

// change is a sampled change in one domain.
type change struct {
	aggregator.Applied
	id    trace.TraceID
	write write
	// reason is why the kernel rejects the change; empty if it is applied.
	reason string
}

// New makes a listener. It connects to nothing before Run.
func New(c Config) *Traces {
	t := &Traces{
		config: c, stopMax: stopMax, ratio: sdktrace.TraceIDRatioBased(float64(c.PerMillion) / 1e6), began: time.Now(),
		domains: map[string]*domain{}, queue: make(chan change, queueMax), ids: &ids{}, made: &made{},
		exporter: otlptrace.NewUnstarted(newClient(c.Endpoint)),
	}
	if binary.BigEndian.PutUint32(t.key[:], c.Seed); c.Seed == 0 {
		_, _ = rand.Read(t.key[:]) // it never fails
	}
	for name := range c.Domains {
		t.domains[name] = &domain{}
	}
	t.tracer = sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // ratio has decided before
		sdktrace.WithIDGenerator(t.ids), sdktrace.WithSpanProcessor(t.made),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "sluice"),
			attribute.String("service.version", c.Version), attribute.String("k8s.node.name", c.Node))),
	).Tracer("github.com/sluice-proxy/sluice")
	return t
}

// Dropped returns how many sampled changes were not exported.
func (t *Traces) Dropped() uint64 { return t.dropped.Load() }

// Supervisor ignores events.
func (t *Traces) Supervisor(supervisor.Event[service.Key]) {}

// Actors ignores events.
func (t *Traces) Actors(actors.Event) {}

// Source ignores events.
func (t *Traces) Source(source.Shadowed) {}

// Aggregator queues sampled changes.
func (t *Traces) Aggregator(event aggregator.Event) {
	switch e := event.(type) {
	case aggregator.BatchWritten:
		if d := t.domains[e.Domain]; d != nil {
			d.write = write{e.Batch.Number, len(e.Batch.Contributions), e.Receipt.Written, e.Receipt.Took}
			d.rejected = nil
			if e.Receipt.Outcome != dataplane.Landed {
				d.rejected = e.Batch.Contributions
			}
		}
	case aggregator.Applied:
		if d := t.domains[e.Domain]; d != nil && e.Key != service.Node {
			id := t.id(&e.Contribution)
			if t.slow(&e) || t.sampled(id) {
				t.put(change{Applied: e, id: id, write: d.write})
			}
		}
	case aggregator.Quarantined:
		if d := t.domains[e.Domain]; d != nil && e.Key != service.Node {
			t.put(t.rejected(d, &e))
		}
	}
}

// rejected completes a rejection with the times of the last write, which the event does not have.
func (t *Traces) rejected(d *domain, e *aggregator.Quarantined) change {
	c := change{Applied: aggregator.Applied{Domain: e.Domain, At: e.At}, write: d.write, reason: e.Reason}
	c.Contribution = dataplane.Contribution{Key: e.Key, Revision: e.Revision, Received: e.At}
	i := slices.IndexFunc(d.rejected, func(of dataplane.Contribution) bool { return of.Key == e.Key })
	if i >= 0 {
		c.Contribution = d.rejected[i]
		c.Batch, c.Batched = d.write.number, e.At.Add(-d.write.took)
	}
	c.id = t.id(&c.Contribution)
	return c
}

// slow reports whether a change took long. Those at an actor's start do not count: they wait for the startup.
func (t *Traces) slow(e *aggregator.Applied) bool {
	return !e.Received.IsZero() && e.Trace.Causes&dataplane.CauseStart == 0 && e.At.Sub(e.Received) > t.config.Slow
}

// sampled reports whether a trace is in the sample. A client that writes an object knows its trace, so a key decides.
func (t *Traces) sampled(id trace.TraceID) bool {
	if t.config.PerMillion == 0 {
		return false
	}
	keyed := sha256.Sum256(append(t.key[:], id[:]...))
	id = trace.TraceID(keyed[:16])
	return t.ratio.ShouldSample(sdktrace.SamplingParameters{ParentContext: context.Background(), TraceID: id}).Decision == sdktrace.RecordAndSample
}

func (t *Traces) put(c change) {
	select {
	case t.queue <- c:
	default:
		t.dropped.Add(1)
	}
}

// triggered reports whether a change in the cluster since the start of the process caused this one.
func (t *Traces) triggered(c *dataplane.Contribution) bool { return c.Trigger.After(t.began) }

// id returns the trace of a change. All nodes and domains have the same trace for one change of endpoints in the
// cluster, so they sample the same ones. Changes of other kinds have one trace per node.
func (t *Traces) id(c *dataplane.Contribution) trace.TraceID {
	var room [256]byte
	text := fmtKey(room[:0], c.Key)
	at := c.Trigger
	if !t.triggered(c) {
		text = append(append(text, 0), t.config.Node...)
		if at = c.Received; at.IsZero() {
			at = c.Trace.Seen.Time()
		}
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(text, uint64(at.UnixNano())))
	return trace.TraceID(sum[:16])
}

func fmtKey(to []byte, key service.Key) []byte {
	return append(append(append(to, key.Namespace...), '/'), key.Name...)
}

// Run exports until the context ends, and then for a second at most.
func (t *Traces) Run(ctx context.Context) {
	ticks := time.NewTicker(pause)
	defer ticks.Stop()
	for ctx.Err() == nil {
		select {
		case c := <-t.queue:
			t.add(ctx, &c)
		case <-ticks.C:
			t.export(ctx)
		case <-ctx.Done():
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.stopMax)
	defer cancel()
	for len(t.queue) > 0 && last.Err() == nil {
		c := <-t.queue
		t.add(last, &c)
	}
	t.dropped.Add(uint64(len(t.queue)))
	t.export(last)
}

// add adds the spans of a change to the next request, and sends it if it is large.
func (t *Traces) add(ctx context.Context, c *change) {
	t.spans(c)
	if t.changes++; t.changes >= batchMax {
		t.export(ctx)
	}
}

// export sends all spans. They are not sent again: newer changes matter more.
func (t *Traces) export(ctx context.Context) {
	if t.changes == 0 {
		return
	}
	err := ctx.Err() // at the end of the process, encoding takes too long as well
	if err == nil {
		err = t.exporter.ExportSpans(ctx, t.made.spans)
	}
	if err != nil {
		t.dropped.Add(t.changes)
		t.config.Failed(fmt.Errorf("SluiceConfiguration.tracing.endpoint %s: %w", t.config.Endpoint, err))
	}
	clear(t.made.spans)
	t.made.spans, t.changes = t.made.spans[:0], 0
}
