// SPDX-License-Identifier: Apache-2.0

// Package observe defines how the core is watched. The core announces typed events to a [Listener]
// and uses no logger, metrics or health checks, so that its behavior does not depend on its listeners.
// The daemon makes the listeners: [Log] here, and those of the packages below.
package observe

import (
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
)

// Listener receives all events, on the goroutines that cause them. So it must be safe for concurrent
// use and must not block.
type Listener interface {
	Supervisor(supervisor.Event[service.Key])
	Aggregator(aggregator.Event)
	Actors(actors.Event)
	// Source receives the beginning and the end of conflicts between Services that request the same frontends.
	Source(source.Shadowed)
}

// Log is a listener that writes to a logger: at info and above what an operator needs to know, at
// ChangeLevel what is applied, and at debug the normal course of things. docs/logs.md lists the
// messages that ask for action.
type Log struct {
	log *zap.Logger
	// families has the family of each domain whose rules serve Services.
	families  map[string]service.Family
	incidents Incidents
	changes   changes
	// written counts the objects of batches that landed.
	written atomic.Int64
}

// Written returns how many objects were written since the start, in all domains.
func (l *Log) Written() int64 { return l.written.Load() }

// NewLog makes a listener on a logger. families has the family of each domain whose rules serve
// Services; nil means that their changes are not logged one by one.
func NewLog(log *zap.Logger, families map[string]service.Family) *Log {
	return &Log{log: log, families: families}
}

func (l *Log) tellsChanges() bool {
	return len(l.families) > 0 && l.log.Core().Enabled(ChangeLevel)
}

// about names the Service that a line is about. Rules that serve all Services, such as the hooks,
// belong to the node.
func about(key service.Key) zap.Field {
	if key == service.Node {
		return zap.String("service", "none: rules of the node itself")
	}
	return zap.Stringer("service", key)
}

// Supervisor logs what happens to actors.
func (l *Log) Supervisor(event supervisor.Event[service.Key]) {
	child := about(event.Child)
	switch e := event.What.(type) {
	case supervisor.Started:
		if e.Again {
			l.log.Info("actor restarted", child, zap.Uint64("attempt", event.Incarnation))
		}
	case supervisor.Failed:
		fields := []zap.Field{
			child, zap.Error(e.Err), zap.Duration("retryAfter", e.Backoff),
		}
		if p, ok := errors.AsType[*supervisor.PanicError](e.Err); ok {
			fields = append(fields, zap.ByteString("stack", p.Stack))
		}
		l.log.Error("failed to process Service; restarting its actor", fields...)
	case supervisor.Stuck:
		l.log.Error("actor hung; replaced it", child,
			zap.Duration("duration", e.For), zap.Duration("retryAfter", e.Backoff),
			zap.Int("abandoned", e.Abandoned), zap.String("stack", e.Stack))
	case supervisor.Parked:
		l.log.Error("actor parked after repeated failures", child,
			zap.Time("until", e.Until), zap.Error(e.Err))
	case supervisor.Unparked:
		l.log.Info("retrying parked Service", child, zap.Bool("changed", e.Nudged))
	case supervisor.Unstopped:
		l.log.Warn("actor did not stop; shutting down without it", child,
			zap.Duration("duration", e.After), zap.String("stack", e.Stack))
	case supervisor.Returned:
		l.log.Info("abandoned goroutine returned", child, zap.Int("abandoned", e.Abandoned))
	case supervisor.Ended:
		l.changes.forget(event.Child)
		l.log.Debug("Service was removed", child)
	}
}

// in returns the fields of a line about a Service in a domain.
func in(domain string, key service.Key, more ...zap.Field) []zap.Field {
	return append([]zap.Field{zap.String("domain", domain), about(key)}, more...)
}

// Aggregator logs what happens in a domain.
func (l *Log) Aggregator(event aggregator.Event) {
	switch e := event.(type) {
	case aggregator.GateOpened:
		l.gateOpened(e)
	case aggregator.BatchWritten:
		l.batch(e)
	case aggregator.AuditDone:
		l.audit(e)
	case aggregator.RepairBegan:
		l.repair(e)
	case aggregator.Repaired:
		l.log.Info("rules restored", zap.String("domain", e.Domain),
			zap.Int("objects", e.Objects), zap.Duration("took", e.Took.Round(time.Microsecond)))
	case aggregator.Applied:
		if family, ok := l.families[e.Domain]; ok && e.Key != service.Node && l.tellsChanges() {
			l.changes.applied(e, family)
		}
		fields := in(e.Domain, e.Key, zap.Stringer("revision", e.Revision))
		if !e.Received.IsZero() {
			fields = append(fields, zap.Duration("latency", e.At.Sub(e.Received)))
		}
		l.log.Debug("applied", fields...)
	case aggregator.Quarantined:
		l.quarantined(e)
	case aggregator.Freed:
		l.log.Info("Service no longer quarantined", in(e.Domain, e.Key)...)
	case aggregator.NodeAtFault:
		l.log.Error("kernel rejected node-wide rules; retrying",
			zap.String("domain", e.Domain), zap.String("reason", e.Reason))
	case aggregator.LateRejected:
		l.log.Info("ignored late fragment from a fenced actor",
			in(e.Domain, e.Key, zap.Stringer("revision", e.Revision))...)
	}
}

func (l *Log) gateOpened(e aggregator.GateOpened) {
	if e.Missing == 0 && !e.Node {
		l.log.Info("startup gate opened; starting first write", zap.String("domain", e.Domain))
		return
	}
	fields := []zap.Field{zap.String("domain", e.Domain), zap.Int("missing", e.Missing)}
	if e.Node {
		fields = append(fields, zap.Bool("nodeMissing", true))
	}
	l.log.Warn("starting first write without some Services; they were not ready in time", fields...)
}

func (l *Log) quarantined(e aggregator.Quarantined) {
	errorIfNew := zap.ErrorLevel
	if e.Again {
		errorIfNew = zap.DebugLevel
	}
	fields := in(e.Domain, e.Key, zap.Stringer("revision", e.Revision), zap.String("reason", e.Reason))
	if e.Cause == aggregator.DoesNotLand {
		l.log.Log(errorIfNew, "Service quarantined: all writes of its rules failed", fields...)
		return
	}
	l.log.Log(errorIfNew, "Service quarantined: rules rejected", fields...)
}

// Source implements Listener.
func (l *Log) Source(e source.Shadowed) {
	fields := []zap.Field{zap.Stringer("service", e.Key), zap.Stringer("addresses", e.Frontends)}
	if e.Over {
		l.log.Info("Service address conflict resolved", append(fields, zap.Stringer("servedBefore", e.By))...)
		return
	}
	l.log.Warn("Service address conflict; another Service owns the address",
		append(fields, zap.Stringer("servedBy", e.By))...)
}

func (l *Log) batch(e aggregator.BatchWritten) {
	r := e.Receipt
	fields := []zap.Field{
		zap.String("domain", e.Domain), zap.Uint64("batch", e.Batch.Number),
		zap.Int("services", services(e.Batch)), zap.Int("objects", r.Written.Objects),
		zap.Int("lines", r.Written.Lines), zap.Int("bytes", r.Written.Bytes), zap.Duration("took", r.Took),
	}
	if r.Outcome != dataplane.Landed {
		l.repeated("batch write failed; retrying", e.Domain,
			append(fields, zap.Stringer("outcome", r.Outcome), zap.Error(r.Err)))
		return
	}
	l.written.Add(int64(r.Written.Objects))
	l.over("batch writes recovered", "batch write failed; retrying", e.Domain)
	switch {
	case e.Batch.Number == 1: // an operator who starts a proxy waits for this
		l.log.Info("batch written", fields...)
	default:
		l.log.Debug("batch written", fields...)
	}
}

// services counts the Services of a batch. The node itself does not count.
func services(b *dataplane.Batch) (n int) {
	for i := range b.Contributions {
		if b.Contributions[i].Key != service.Node {
			n++
		}
	}
	return n
}

// repeated logs a failure that may repeat until its cause is removed; see Incidents. It logs most repetitions at debug.
func (l *Log) repeated(message, domain string, fields []zap.Field) {
	level := zap.DebugLevel
	tell, failures := l.incidents.Failed(message + domain)
	if tell {
		level = zap.WarnLevel
	}
	l.log.Log(level, message, append(fields, zap.Int("failures", failures))...)
}

// over logs the end of a series of failures.
func (l *Log) over(message, of, domain string) {
	if failures, lasted, over := l.incidents.Succeeded(of + domain); over {
		l.log.Info(message, zap.String("domain", domain), zap.Int("failures", failures),
			zap.Duration("duration", lasted.Round(time.Millisecond)))
	}
}

func (l *Log) audit(e aggregator.AuditDone) {
	d := e.Drift
	fields := []zap.Field{
		zap.String("domain", e.Domain), zap.Duration("took", e.Took.Round(time.Microsecond)),
		zap.Int("equal", d.Equal), zap.Int("missing", d.Missing),
		zap.Int("different", d.Different), zap.Int("swept", d.Unwanted),
	}
	if e.Err != nil {
		l.repeated("audit failed; retrying", e.Domain, append(fields, zap.Error(e.Err)))
		return
	}
	l.over("audits succeed again", "audit failed; retrying", e.Domain)
	switch {
	case d.Any() && d.Undone == nil: // left by a previous process, or by a write that failed
		l.log.Info("audit done", fields...)
	default:
		l.log.Debug("audit done", fields...)
	}
}

// repair reports the rules that another process changed (or the sockets that closed by themselves),
// and that Sluice restores them.
func (l *Log) repair(e aggregator.RepairBegan) {
	u := e.Undone
	fields := []zap.Field{
		zap.String("domain", e.Domain), zap.Int("missing", u.Missing), zap.Int("different", u.Different),
		zap.Int("unwanted", u.Unwanted), zap.Int("services", u.Services), zap.Strings("examples", e.Examples),
	}
	if by := e.By.String(); by != "" {
		fields = append(fields, zap.String("by", by))
	}
	if e.Pause == 0 {
		l.log.Warn("rules changed by another process; restoring them", fields...)
		return
	}
	l.log.Warn("rules changed repeatedly by another process; delaying repair",
		append(fields, zap.Int("repairs", e.Again), zap.Duration("pause", e.Pause))...)
}

// Actors logs what happens in the directory and to actors.
func (l *Log) Actors(event actors.Event) {
	switch e := event.(type) {
	case actors.TooLarge:
		l.log.Warn("Service object limit exceeded; leaving out some of its frontends", zap.Stringer("service", e.Key),
			zap.Stringer("family", e.Family), zap.Int("objects", e.Objects), zap.Int("max", e.Max), zap.Int("leftOut", e.LeftOut))
	case actors.Fits:
		l.log.Info("Service within the object limit again", zap.Stringer("service", e.Key))
	}
}
