// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

func served(key service.Key, endpoints int) service.View {
	view := service.View{Key: key}
	var all []service.Endpoint
	for n := range endpoints {
		all = append(all, service.Endpoint{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n + 1)}), 80)})
	}
	view.Ports[service.IPv4] = []service.PortView{{Cluster: all}, {}}
	return view
}

// TestLog_Changes: one line per Service and family contains the number of endpoints, the duration of the change and its
// batch.
func TestLog_Changes(t *testing.T) {
	core, lines := observer.New(ChangeLevel)
	l := NewLog(zap.New(core), map[string]service.Family{"d/IPv4": service.IPv4})
	key, received := service.Key{Namespace: "a", Name: "b"}, time.Unix(1, 0)
	last := func() (zapcore.Level, string, map[string]any) {
		all := lines.All()
		line := all[len(all)-1]
		return line.Level, line.Message, line.ContextMap()
	}
	text := "Service change applied"
	expect := func(want fields) {
		t.Helper()
		level, message, got := last()
		if level != ChangeLevel || message != text || !reflect.DeepEqual(got, map[string]any(want)) {
			t.Errorf("got %v %q\n%v, want\n%v", level, message, got, want)
		}
	}
	apply := func(after time.Duration, batch uint64) {
		l.Aggregator(aggregator.Applied{Domain: "d/IPv4", At: received.Add(after), Batch: batch,
			Contribution: dataplane.Contribution{Key: key, Received: received}})
	}
	apply(2*time.Millisecond, 7)
	l.Programmed(context.Background(), service.IPv4, served(key, 3))
	expect(fields{"service": "a/b", "family": "IPv4", "ports": int64(2), "endpoints": int64(3),
		"took": 2 * time.Millisecond, "domain": "d/IPv4", "batch": uint64(7)})

	// what an audit has found in the kernel was not written
	apply(time.Second, 0)
	l.Programmed(context.Background(), service.IPv4, served(key, 1))
	expect(fields{"service": "a/b", "family": "IPv4", "ports": int64(2), "endpoints": int64(1), "took": time.Second, "domain": "d/IPv4",
		"removed": []any{"10.0.0.2:80", "10.0.0.3:80"}})

	// many endpoints: examples and a number
	l.Programmed(context.Background(), service.IPv4, served(key, 9))
	expect(fields{"service": "a/b", "family": "IPv4", "ports": int64(2), "endpoints": int64(9),
		"added": []any{"10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80", "10.0.0.5:80", "10.0.0.6:80"}, "addedMore": int64(3)})

	// no line for a family that the Service does not have, neither while it is served nor at its end
	before := lines.Len()
	l.Programmed(context.Background(), service.IPv6, served(key, 9))
	l.Programmed(context.Background(), service.IPv6, service.View{Key: key})
	if lines.Len() != before {
		t.Errorf("lines about a family that the Service does not have: %v", lines.All()[before:])
	}

	text = "Service deleted"
	l.Programmed(context.Background(), service.IPv4, service.View{Key: key})
	expect(fields{"service": "a/b", "family": "IPv4"})
	if len(l.changes.of)+len(l.changes.told) > 0 {
		t.Errorf("%d changes and the ports of %d Services are kept", len(l.changes.of), len(l.changes.told))
	}
}

// TestLog_NoChangesByDefault: without -v=2, changes are neither logged nor kept.
func TestLog_NoChangesByDefault(t *testing.T) {
	core, lines := observer.New(zap.InfoLevel)
	l := NewLog(zap.New(core), map[string]service.Family{"d": service.IPv4})
	l.Aggregator(aggregator.Applied{Domain: "d", Contribution: dataplane.Contribution{Key: service.Key{Name: "b"}}})
	l.Programmed(context.Background(), service.IPv4, served(service.Key{Name: "c"}, 1))
	if len(l.changes.of)+len(l.changes.told) > 0 || lines.Len() > 0 {
		t.Errorf("%d changes, the ports of %d Services, %d lines", len(l.changes.of), len(l.changes.told), lines.Len())
	}
}

// TestIncidents: of repeated failures, the first one, one every ten minutes, and the recovery are reported.
func TestIncidents(t *testing.T) {
	now := time.Unix(0, 0)
	i := Incidents{now: func() time.Time { return now }}
	told := 0
	for range 60 { // for half an hour
		if tell, _ := i.Failed("x"); tell {
			told++
		}
		now = now.Add(30 * time.Second)
	}
	now = now.Add(-time.Second)
	if told != 3 {
		t.Errorf("told %d times in half an hour, want 3", told)
	}
	if _, _, over := i.Succeeded("y"); over {
		t.Error("another thing is over")
	}
	if failures, lasted, over := i.Succeeded("x"); failures != 60 || lasted != 30*time.Minute-time.Second || !over {
		t.Errorf("%d failures in %v, over %v", failures, lasted, over)
	}
	if _, _, over := i.Succeeded("x"); over {
		t.Error("over twice")
	}
	if tell, _ := i.Failed("x"); tell {
		t.Error("a failure right after the end is news")
	}
	now = now.Add(time.Hour)
	if tell, failures := i.Failed("x"); !tell || failures != 1 {
		t.Errorf("an hour later: told %v as number %d", tell, failures)
	}
}

// TestLog_RepeatedBatchFailures: a batch that keeps failing causes one line at warn, and one when it lands.
func TestLog_RepeatedBatchFailures(t *testing.T) {
	core, lines := observer.New(zap.InfoLevel)
	l := NewLog(zap.New(core), nil)
	for n := range uint64(5) {
		receipt := dataplane.Receipt{Outcome: dataplane.Busy, Err: errors.New("lock held")}
		if n == 4 {
			receipt = dataplane.Receipt{}
		}
		l.Aggregator(aggregator.BatchWritten{Domain: "d", Batch: &dataplane.Batch{Number: n + 2}, Receipt: receipt})
	}
	var got []string
	for _, line := range lines.All() {
		got = append(got, line.Level.String()+" "+line.Message)
	}
	if want := []string{"warn batch write failed; retrying", "info batch writes recovered"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestLog_RepeatedQuarantineLoggedOnce: a quarantined Service that the kernel rejects again causes no further line.
func TestLog_RepeatedQuarantineLoggedOnce(t *testing.T) {
	core, lines := observer.New(zap.ErrorLevel)
	l := NewLog(zap.New(core), nil)
	for _, again := range []bool{false, true, true, false} {
		l.Aggregator(aggregator.Quarantined{Domain: "d", Reason: "one", Again: again})
	}
	if lines.Len() != 2 {
		t.Errorf("%d lines, want 2: %v", lines.Len(), lines.All())
	}
}
