// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
)

var _ Listener = (*Log)(nil)

type fields map[string]any

// logCase is one event, and the line that it makes; no message means no line.
type logCase struct {
	name    string
	tell    func(*Log)
	level   zapcore.Level
	message string
	fields  fields
}

func testLog(t *testing.T, cases []logCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			core, lines := observer.New(zapcore.DebugLevel)
			c.tell(NewLog(zap.New(core), nil))
			if c.message == "" {
				if lines.Len() > 0 {
					t.Errorf("got %v, want no line", lines.All())
				}
				return
			}
			if lines.Len() != 1 {
				t.Fatalf("got %v, want one line", lines.All())
			}
			line := lines.All()[0]
			if line.Level != c.level || line.Message != c.message {
				t.Errorf("got %v %q, want %v %q", line.Level, line.Message, c.level, c.message)
			}
			if got := line.ContextMap(); !reflect.DeepEqual(got, map[string]any(c.fields)) {
				t.Errorf("got  %v\nwant %v", got, c.fields)
			}
		})
	}
}

func TestLog_Supervisor(t *testing.T) {
	until := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	panicked := &supervisor.PanicError{Value: "nil map", Stack: []byte("goroutine 7")}
	tell := func(incarnation uint64, what supervisor.Change) func(*Log) {
		e := supervisor.Event[service.Key]{Child: service.Key{Namespace: "a", Name: "b"}, Incarnation: incarnation, What: what}
		return func(l *Log) { l.Supervisor(e) }
	}
	testLog(t, []logCase{
		{name: "started", tell: tell(1, supervisor.Started{})},
		{
			name: "restarted", tell: tell(2, supervisor.Started{Again: true}),
			level: zap.InfoLevel, message: "actor restarted",
			fields: fields{"service": "a/b", "attempt": uint64(2)},
		},
		{
			name:  "failed",
			tell:  tell(1, supervisor.Failed{Err: errors.New("broken"), Score: 1.5, Backoff: time.Second}),
			level: zap.ErrorLevel, message: "failed to process Service; restarting its actor",
			fields: fields{"service": "a/b", "error": "broken", "retryAfter": time.Second},
		},
		{
			name:  "panicked",
			tell:  tell(1, supervisor.Failed{Err: fmt.Errorf("wrapped: %w", panicked), Score: 1, Backoff: time.Second}),
			level: zap.ErrorLevel, message: "failed to process Service; restarting its actor",
			fields: fields{"service": "a/b", "error": "wrapped: panic: nil map", "retryAfter": time.Second, "stack": "goroutine 7"},
		},
		{
			name:  "stuck",
			tell:  tell(1, supervisor.Stuck{For: time.Minute, Stack: "here", Backoff: time.Second, Abandoned: 3}),
			level: zap.ErrorLevel, message: "actor hung; replaced it",
			fields: fields{"service": "a/b", "duration": time.Minute, "retryAfter": time.Second, "abandoned": int64(3), "stack": "here"},
		},
		{
			name:  "parked",
			tell:  tell(1, supervisor.Parked{Score: 6, Err: errors.New("broken"), Until: until}),
			level: zap.ErrorLevel, message: "actor parked after repeated failures",
			fields: fields{"service": "a/b", "error": "broken", "until": until},
		},
		{
			name: "unparked", tell: tell(1, supervisor.Unparked{Nudged: true}),
			level: zap.InfoLevel, message: "retrying parked Service",
			fields: fields{"service": "a/b", "changed": true},
		},
		{
			name: "unstopped", tell: tell(1, supervisor.Unstopped{After: time.Second, Stack: "here"}),
			level: zap.WarnLevel, message: "actor did not stop; shutting down without it",
			fields: fields{"service": "a/b", "duration": time.Second, "stack": "here"},
		},
		{
			name: "returned", tell: tell(1, supervisor.Returned{Abandoned: 2}),
			level: zap.InfoLevel, message: "abandoned goroutine returned",
			fields: fields{"service": "a/b", "abandoned": int64(2)},
		},
		{
			name: "ended", tell: tell(1, supervisor.Ended{}),
			level: zap.DebugLevel, message: "Service was removed", fields: fields{"service": "a/b"},
		},
	})
}

func TestLog_Actors(t *testing.T) {
	testLog(t, []logCase{{
		name: "too large",
		tell: func(l *Log) {
			l.Actors(actors.TooLarge{Key: service.Key{Namespace: "a", Name: "b"}, Excess: service.Excess{Family: service.IPv6, Objects: 20, Max: 10, LeftOut: 3}})
		},
		level: zap.WarnLevel, message: "Service object limit exceeded; leaving out some of its frontends",
		fields: fields{"service": "a/b", "family": "IPv6", "objects": int64(20), "max": int64(10), "leftOut": int64(3)},
	}, {
		name:  "no longer too large",
		tell:  func(l *Log) { l.Actors(actors.Fits{Key: service.Key{Namespace: "a", Name: "b"}}) },
		level: zap.InfoLevel, message: "Service within the object limit again", fields: fields{"service": "a/b"},
	}})
}

func TestLog_Aggregator(t *testing.T) {
	key := service.Key{Namespace: "a", Name: "b"}
	revision := service.Revision{Incarnation: 2, Sequence: 3}
	received := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tell := func(e aggregator.Event) func(*Log) { return func(l *Log) { l.Aggregator(e) } }
	testLog(t, []logCase{
		{
			name: "gate opened", tell: tell(aggregator.GateOpened{Domain: "d"}),
			level: zap.InfoLevel, message: "startup gate opened; starting first write", fields: fields{"domain": "d"},
		},
		{
			name: "gate opened without all", tell: tell(aggregator.GateOpened{Domain: "d", Missing: 2}),
			level: zap.WarnLevel, message: "starting first write without some Services; they were not ready in time",
			fields: fields{"domain": "d", "missing": int64(2)},
		},
		{
			name: "applied",
			tell: tell(aggregator.Applied{
				Domain: "d", At: received.Add(time.Second),
				Contribution: dataplane.Contribution{Key: key, Revision: revision, Received: received},
			}),
			level: zap.DebugLevel, message: "applied",
			fields: fields{"domain": "d", "service": "a/b", "revision": "2.3", "latency": time.Second},
		},
		{
			name: "applied without a cause",
			tell: tell(aggregator.Applied{
				Domain: "d", At: received, Contribution: dataplane.Contribution{Key: key, Revision: revision},
			}),
			level: zap.DebugLevel, message: "applied",
			fields: fields{"domain": "d", "service": "a/b", "revision": "2.3"},
		},
		{
			name: "quarantined", tell: tell(aggregator.Quarantined{Domain: "d", Key: key, Revision: revision, Reason: "line 7"}),
			level: zap.ErrorLevel, message: "Service quarantined: rules rejected",
			fields: fields{"domain": "d", "service": "a/b", "revision": "2.3", "reason": "line 7"},
		},
		{
			name: "quarantined because it does not land", tell: tell(aggregator.Quarantined{Domain: "e", Key: key, Revision: revision,
				Cause: aggregator.DoesNotLand, Reason: "does not land: busy: no memory"}),
			level: zap.ErrorLevel, message: "Service quarantined: all writes of its rules failed",
			fields: fields{"domain": "e", "service": "a/b", "revision": "2.3", "reason": "does not land: busy: no memory"},
		},
		{
			name: "freed", tell: tell(aggregator.Freed{Domain: "d", Key: key}),
			level: zap.InfoLevel, message: "Service no longer quarantined", fields: fields{"domain": "d", "service": "a/b"},
		},
		{
			name: "node at fault", tell: tell(aggregator.NodeAtFault{Domain: "d", Reason: "no nat"}),
			level: zap.ErrorLevel, message: "kernel rejected node-wide rules; retrying",
			fields: fields{"domain": "d", "reason": "no nat"},
		},
		{
			name: "late", tell: tell(aggregator.LateRejected{Domain: "d", Key: key, Revision: revision}),
			level: zap.InfoLevel, message: "ignored late fragment from a fenced actor",
			fields: fields{"domain": "d", "service": "a/b", "revision": "2.3"},
		},
	})
}

func TestLog_Source(t *testing.T) {
	event := source.Shadowed{
		Key: service.Key{Namespace: "a", Name: "b"}, By: service.Key{Namespace: "a", Name: "owner"},
		Frontends: service.Frontends{{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80}, {Port: 30080, Protocol: service.UDP}},
	}
	over := event
	over.Over = true
	testLog(t, []logCase{
		{
			name: "shadowed", tell: func(l *Log) { l.Source(event) },
			level: zap.WarnLevel, message: "Service address conflict; another Service owns the address",
			fields: fields{"service": "a/b", "addresses": "192.0.2.1:80/tcp, node port 30080/udp", "servedBy": "a/owner"},
		},
		{
			name: "no longer shadowed", tell: func(l *Log) { l.Source(over) },
			level: zap.InfoLevel, message: "Service address conflict resolved",
			fields: fields{"service": "a/b", "addresses": "192.0.2.1:80/tcp, node port 30080/udp", "servedBefore": "a/owner"},
		},
	})
}

func TestLog_Batches(t *testing.T) {
	written := func(number uint64, receipt dataplane.Receipt) func(*Log) {
		receipt.Written = dataplane.Written{Objects: 3, Lines: 4, Bytes: 5, Calls: 1}
		receipt.Took = time.Millisecond
		batch := &dataplane.Batch{Number: number, Contributions: []dataplane.Contribution{{Key: service.Key{Name: "a"}}, {Key: service.Node}, {Key: service.Key{Name: "b"}}}}
		return func(l *Log) { l.Aggregator(aggregator.BatchWritten{Domain: "d", Batch: batch, Receipt: receipt}) }
	}
	with := func(number uint64, more fields) fields {
		all := fields{
			"domain": "d", "batch": number, "services": int64(2), "objects": int64(3), "lines": int64(4),
			"bytes": int64(5), "took": time.Millisecond,
		}
		maps.Copy(all, more)
		return all
	}
	testLog(t, []logCase{
		{
			name: "first", tell: written(1, dataplane.Receipt{}),
			level: zap.InfoLevel, message: "batch written", fields: with(1, nil),
		},
		{
			name: "later", tell: written(2, dataplane.Receipt{}),
			level: zap.DebugLevel, message: "batch written", fields: with(2, nil),
		},
		{
			name:  "rejected",
			tell:  written(1, dataplane.Receipt{Outcome: dataplane.Rejected, Err: errors.New("line 7")}),
			level: zap.WarnLevel, message: "batch write failed; retrying",
			fields: with(1, fields{"outcome": "rejected", "error": "line 7", "failures": int64(1)}),
		},
	})
}

func TestLog_Audits(t *testing.T) {
	audit := func(drift ledger.Drift, err error) func(*Log) {
		return func(l *Log) {
			l.Aggregator(aggregator.AuditDone{Domain: "d", Drift: drift, Took: 1234567 * time.Nanosecond, Err: err})
		}
	}
	with := func(equal, missing, different, swept int64) fields {
		return fields{
			"domain": "d", "took": 1235 * time.Microsecond,
			"equal": equal, "missing": missing, "different": different, "swept": swept,
		}
	}
	failed := with(0, 0, 0, 0)
	failed["error"], failed["failures"] = "lock held", int64(1)
	testLog(t, []logCase{
		{
			name: "all as wanted", tell: audit(ledger.Drift{Equal: 9}, nil),
			level: zap.DebugLevel, message: "audit done", fields: with(9, 0, 0, 0),
		},
		{
			name: "drift", tell: audit(ledger.Drift{Equal: 9, Missing: 1, Different: 2, Unwanted: 3}, nil),
			level: zap.InfoLevel, message: "audit done", fields: with(9, 1, 2, 3),
		},
		{
			name: "another program's, which is reported separately", tell: audit(ledger.Drift{Equal: 9, Missing: 1, Different: 2, Unwanted: 3, Undone: &ledger.Undone{}}, nil),
			level: zap.DebugLevel, message: "audit done", fields: with(9, 1, 2, 3),
		},
		{
			name: "failed", tell: audit(ledger.Drift{}, errors.New("lock held")),
			level: zap.WarnLevel, message: "audit failed; retrying", fields: failed,
		},
	})
}

func TestLog_Repairs(t *testing.T) {
	began := func(by dataplane.ForeignProcess, again int, pause time.Duration) func(*Log) {
		return func(l *Log) {
			l.Aggregator(aggregator.RepairBegan{Domain: "d", Undone: ledger.Undone{Missing: 4, Different: 3, Unwanted: 2, Services: 1},
				Examples: []string{"missing: chain services"}, By: by, Again: again, Pause: pause})
		}
	}
	with := func(more fields) fields {
		all := fields{"domain": "d", "missing": int64(4), "different": int64(3), "unwanted": int64(2), "services": int64(1),
			"examples": []any{"missing: chain services"}}
		maps.Copy(all, more)
		return all
	}
	testLog(t, []logCase{
		{
			name: "the first", tell: began(dataplane.ForeignProcess{}, 0, 0),
			level: zap.WarnLevel, message: "rules changed by another process; restoring them", fields: with(nil),
		},
		{
			name: "by a known program", tell: began(dataplane.ForeignProcess{PID: 7, Command: "nft"}, 0, 0),
			level: zap.WarnLevel, message: "rules changed by another process; restoring them", fields: with(fields{"by": "nft (process 7)"}),
		},
		{
			name: "again", tell: began(dataplane.ForeignProcess{PID: 7}, 3, 4*time.Second), level: zap.WarnLevel,
			message: "rules changed repeatedly by another process; delaying repair",
			fields:  with(fields{"by": "process 7", "repairs": int64(3), "pause": 4 * time.Second}),
		},
		{
			name: "restored", tell: func(l *Log) { l.Aggregator(aggregator.Repaired{Domain: "d", Repairs: 1, Objects: 9, Took: 1234567}) },
			level: zap.InfoLevel, message: "rules restored",
			fields: fields{"domain": "d", "objects": int64(9), "took": 1235 * time.Microsecond},
		},
	})
}
