package observe

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/supervisor"
)

// Log is a listener that writes to a logger: what an operator has to know at
// info and above, the ordinary course of things at debug.
type Log struct {
	log *zap.Logger
}

// NewLog makes a listener on a logger.
func NewLog(log *zap.Logger) *Log { return &Log{log: log} }

// Supervisor logs what happens to actors.
func (l *Log) Supervisor(event supervisor.Event[service.Key]) {
	switch e := event.What.(type) {
	case supervisor.Started:
		if e.Again {
			l.log.Info("actor restarted", zap.Stringer("service", event.Child), zap.Uint64("incarnation", event.Incarnation))
		}
	case supervisor.Failed:
		fields := []zap.Field{zap.Stringer("service", event.Child), zap.Error(e.Err),
			zap.Duration("backoff", e.Backoff), zap.Float64("score", e.Score)}
		if p, ok := errors.AsType[*supervisor.PanicError](e.Err); ok {
			fields = append(fields, zap.ByteString("stack", p.Stack))
		}
		l.log.Error("actor failed; its rules stay as they are", fields...)
	case supervisor.Stuck:
		l.log.Error("actor stuck; fenced, and a replacement is started", zap.Stringer("service", event.Child),
			zap.Duration("for", e.For), zap.Duration("backoff", e.Backoff),
			zap.Int("abandoned", e.Abandoned), zap.String("stack", e.Stack))
	case supervisor.Parked:
		l.log.Error("actor parked; tried again when its Service changes", zap.Stringer("service", event.Child),
			zap.Time("until", e.Until), zap.Float64("score", e.Score), zap.Error(e.Err))
	case supervisor.Unparked:
		l.log.Info("parked actor is tried again", zap.Stringer("service", event.Child), zap.Bool("changed", e.Nudged))
	case supervisor.Returned:
		l.log.Info("abandoned actor returned", zap.Stringer("service", event.Child), zap.Int("abandoned", e.Abandoned))
	case supervisor.Ended:
		l.log.Debug("actor retired", zap.Stringer("service", event.Child))
	}
}

// Aggregator logs what happens in a domain.
func (l *Log) Aggregator(event aggregator.Event) {
	switch e := event.(type) {
	case aggregator.GateOpened:
		if e.Missing > 0 {
			l.log.Warn("first write starts without the Services that were not ready in time", zap.String("domain", e.Domain), zap.Int("missing", e.Missing))
			return
		}
		l.log.Info("first write may start", zap.String("domain", e.Domain))
	case aggregator.BatchWritten:
		l.batch(e)
	case aggregator.AuditDone:
		l.audit(e)
	case aggregator.RepairBegan:
		l.repair(e)
	case aggregator.Repaired:
		l.log.Info("rules are as they were written again", zap.String("domain", e.Domain),
			zap.Int("objects", e.Objects), zap.Duration("took", e.Took.Round(time.Microsecond)))
	case aggregator.Applied:
		fields := []zap.Field{zap.String("domain", e.Domain), zap.Stringer("service", e.Key), zap.Stringer("revision", e.Revision)}
		if !e.Received.IsZero() {
			fields = append(fields, zap.Duration("latency", e.At.Sub(e.Received)))
		}
		l.log.Debug("applied", fields...)
	case aggregator.Quarantined:
		l.log.Error("Service quarantined: what it wants is refused; what it had before stays", zap.String("domain", e.Domain),
			zap.Stringer("service", e.Key), zap.Stringer("revision", e.Revision), zap.String("reason", e.Reason))
	case aggregator.Freed:
		l.log.Info("Service accepted again", zap.String("domain", e.Domain), zap.Stringer("service", e.Key))
	case aggregator.NodeAtFault:
		l.log.Error("the kernel refuses rules that belong to no Service; retrying", zap.String("domain", e.Domain), zap.String("reason", e.Reason))
	case aggregator.Shadowed:
		l.log.Warn("addresses of a Service are served by an older one; change or delete either", zap.String("domain", e.Domain),
			zap.Stringer("service", e.Key), zap.Stringer("addresses", e.Frontends), zap.Stringer("servedBy", e.By))
	case aggregator.Unshadowed:
		l.log.Info("addresses of a Service are its own again, or it has nothing to serve there", zap.String("domain", e.Domain),
			zap.Stringer("service", e.Key), zap.Stringer("addresses", e.Frontends), zap.Stringer("servedBefore", e.By))
	case aggregator.LateRefused:
		l.log.Warn("late output of a former incarnation refused", zap.String("domain", e.Domain),
			zap.Stringer("service", e.Key), zap.Stringer("revision", e.Revision))
	}
}

func (l *Log) batch(e aggregator.BatchWritten) {
	r := e.Receipt
	for _, note := range r.Notes {
		l.log.Warn(note, zap.String("domain", e.Domain), zap.Uint64("batch", e.Batch.Number))
	}
	fields := []zap.Field{zap.String("domain", e.Domain), zap.Uint64("batch", e.Batch.Number),
		zap.Int("services", len(e.Batch.Contributions)), zap.Int("objects", r.Written.Objects),
		zap.Int("lines", r.Written.Lines), zap.Int("bytes", r.Written.Bytes), zap.Duration("took", r.Took)}
	if r.Outcome != dataplane.Landed {
		l.log.Warn("batch failed; nothing is lost", append(fields, zap.Stringer("outcome", r.Outcome), zap.Error(r.Err))...)
		return
	}
	level := zap.DebugLevel
	if e.Batch.Number == 1 {
		level = zap.InfoLevel // whoever starts a proxy waits for this
	}
	l.log.Log(level, "batch written", fields...)
}

func (l *Log) audit(e aggregator.AuditDone) {
	d := e.Drift
	fields := []zap.Field{zap.String("domain", e.Domain), zap.Duration("took", e.Took.Round(time.Microsecond)), zap.Int("equal", d.Equal),
		zap.Int("missing", d.Missing), zap.Int("different", d.Different), zap.Int("swept", d.Unwanted)}
	switch {
	case e.Err != nil:
		l.log.Warn("audit failed", append(fields, zap.Error(e.Err))...)
	case d.Any() && d.Undone == nil: // left by a former process, or by a write that failed
		l.log.Info("audit done", fields...)
	default:
		l.log.Debug("audit done", fields...)
	}
}

// repair says what somebody else has changed (or, for listeners, what has ended by
// itself), and that it does not stay so.
func (l *Log) repair(e aggregator.RepairBegan) {
	u := e.Undone
	fields := []zap.Field{zap.String("domain", e.Domain), zap.Int("missing", u.Missing), zap.Int("different", u.Different),
		zap.Int("unwanted", u.Unwanted), zap.Int("services", u.Services), zap.Strings("examples", e.Examples)}
	if by := e.By.String(); by != "" {
		fields = append(fields, zap.String("by", by))
	}
	if e.Pause == 0 {
		l.log.Warn("rules are not as they were written; they are written again", fields...)
		return
	}
	l.log.Warn("the same rules are changed again and again; they are written again after a pause that grows; find the program and stop it",
		append(fields, zap.Int("repairs", e.Again), zap.Duration("pause", e.Pause))...)
}

// Actors logs what happens in the directory and to actors.
func (l *Log) Actors(event actors.Event) {
	switch e := event.(type) {
	case actors.Refused:
		l.log.Error("Service refused: too many Services; raise the bound", zap.Stringer("service", e.Key), zap.Int("bound", e.MaxServices))
	case actors.RefusedGone:
		l.log.Info("refused Service is gone", zap.Stringer("service", e.Key))
	case actors.Drains:
		l.log.Debug("endpoints drain", zap.String("domain", e.Domain), zap.Stringer("service", e.Key), zap.Int("endpoints", e.Endpoints))
	case actors.DrainCut:
		l.drainCut(e)
	case actors.DrainUnknown:
		l.log.Warn("connections of a draining endpoint cannot be found out; it drains until the deadline", zap.String("domain", e.Domain),
			zap.Stringer("service", e.Key), zap.Stringer("endpoint", e.Endpoint), zap.Error(e.Err))
	case actors.HeldUnknown:
		l.log.Warn("it cannot be found out what was draining before the start; connections to that may be cut", zap.String("domain", e.Domain),
			zap.Stringer("service", e.Key), zap.Error(e.Err))
	}
}

// namedMax bounds how many endpoints one line names.
const namedMax = 10

func (l *Log) drainCut(e actors.DrainCut) {
	fields := []zap.Field{zap.String("domain", e.Domain), zap.Stringer("service", e.Key), zap.Int("endpoints", len(e.Endpoints)),
		zap.Stringers("named", e.Endpoints[:min(namedMax, len(e.Endpoints))])}
	if e.Deadline > 0 {
		l.log.Info("endpoints have drained until the deadline; connections that they had left are cut", append(fields, zap.Duration("deadline", e.Deadline))...)
		return
	}
	l.log.Info("too many endpoints of a Service drain; connections that the oldest had left are cut", append(fields, zap.Int("bound", e.Bound))...)
}
