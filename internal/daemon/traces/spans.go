// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// ids names spans: the trace of the current change, and random numbers.
type ids struct{ trace trace.TraceID }

func (i *ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	return i.trace, i.NewSpanID(ctx, i.trace)
}

func (i *ids) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	binary.BigEndian.PutUint64(id[:], max(1, rand.Uint64())) // zero is invalid
	return id
}

// made gathers ended spans.
type made struct{ spans []sdktrace.ReadOnlySpan }

func (m *made) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (m *made) OnEnd(s sdktrace.ReadOnlySpan)                   { m.spans = append(m.spans, s) }
func (m *made) Shutdown(context.Context) error                  { return nil }
func (m *made) ForceFlush(context.Context) error                { return nil }

// spans makes the spans of a change. Only the trigger is from another clock. The other times count back from the end by the
// monotonic clock, so that a step of the wall clock moves all of them.
func (t *Traces) spans(c *change) {
	t.ids.trace = c.id
	end := c.At
	back := func(at time.Time) time.Time { return end.Add(-max(0, end.Sub(at))) }
	steps := []struct {
		name string
		end  time.Time
	}{{"watch", c.Received}, {"actor", c.Trace.Seen.Time()}, {"render", c.Trace.Rendered.Time()}, {"batch", c.Batched}, {"kernel", end}}
	if c.Batched.IsZero() { // nothing had to be written
		steps[3].end, steps = end, steps[:4]
	}
	var begin time.Time
	if t.triggered(&c.Contribution) && !c.Trigger.After(c.Received) {
		begin = back(c.Trigger)
	}
	for i := 0; begin.IsZero(); i++ { // the first known time; the last one always is
		if at := steps[i].end; !at.IsZero() {
			begin, steps = back(at), steps[i+1:]
		}
	}
	ctx, root := t.start(context.Background(), "change", begin, t.attributes(c)...)
	from := begin
	for _, step := range steps {
		if step.end.IsZero() {
			continue
		}
		to := back(step.end)
		if to.Before(from) {
			to = from
		}
		inside, span := t.start(ctx, step.name, from)
		if step.name == "kernel" {
			t.kernel(inside, span, c, from)
		}
		span.End(trace.WithTimestamp(to))
		from = to
	}
	if c.reason != "" {
		root.SetStatus(codes.Error, c.reason)
	}
	root.End(trace.WithTimestamp(end))
}

func (t *Traces) start(ctx context.Context, name string, at time.Time, with ...attribute.KeyValue) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, name, trace.WithTimestamp(at), trace.WithAttributes(with...))
}

// kernel adds the write to its span, and the time until the aggregator reported it.
func (t *Traces) kernel(ctx context.Context, span trace.Span, c *change, from time.Time) {
	if w := &c.write; w.number == c.Batch {
		span.SetAttributes(attribute.Int64("sluice.batch.number", int64(w.number)), attribute.Int("sluice.batch.services", w.services),
			attribute.Int("sluice.batch.objects", w.written.Objects), attribute.Int("sluice.batch.bytes", w.written.Bytes))
		written := from.Add(min(w.took, c.At.Sub(from)))
		_, writing := t.start(ctx, "write", from)
		writing.End(trace.WithTimestamp(written))
		_, ack := t.start(ctx, "ack", written)
		ack.End(trace.WithTimestamp(c.At))
	}
	if c.reason != "" {
		span.SetStatus(codes.Error, c.reason)
	}
}

// attributes describe a change.
func (t *Traces) attributes(c *change) []attribute.KeyValue {
	outcome := "applied"
	if c.reason != "" {
		outcome = "quarantined"
	}
	return []attribute.KeyValue{
		attribute.String("k8s.namespace.name", c.Key.Namespace), attribute.String("k8s.service.name", c.Key.Name),
		attribute.String("sluice.mode", t.config.Mode), attribute.String("sluice.domain", c.Domain),
		attribute.String("sluice.family", t.config.Domains[c.Domain].String()), attribute.String("sluice.revision", c.Revision.String()),
		attribute.StringSlice("sluice.causes", c.Trace.Causes.Names()), attribute.Int("sluice.endpoints", int(c.Trace.Endpoints)),
		attribute.String("sluice.outcome", outcome),
	}
}
