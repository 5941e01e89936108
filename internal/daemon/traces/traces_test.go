// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

const domain4 = "nftables/IPv4"

var patience = testenv.Patience

var web = service.Key{Namespace: "shop", Name: "web"}

func config(endpoint string, perMillion int32) Config {
	return Config{Endpoint: endpoint, PerMillion: perMillion, Slow: time.Second, Mode: "nftables", Node: "n1", Version: "v0.1.0",
		Domains: map[string]service.Family{domain4: service.IPv4}, Failed: func(error) {}}
}

// receiver is an OTLP receiver over HTTP. It answers only while it is not held.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	got  []*tracepb.ResourceSpans
	held chan struct{} // nil or closed: it answers
}

func newReceiver(t testing.TB) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		var data tracepb.TracesData
		if err = errors.Join(err, proto.Unmarshal(body, &data)); err != nil || request.URL.Path != "/v1/traces" || request.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s %s: %v", request.URL, request.Header, err)
		}
		if r.held != nil {
			<-r.held
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got = append(r.got, data.ResourceSpans...)
	}))
	t.Cleanup(r.Close)
	return r
}

// traces returns the spans received, by trace and parent.
func (r *receiver) traces() (all [][]*tracepb.Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range r.got {
		for _, scope := range of.ScopeSpans {
			var one []*tracepb.Span
			for _, s := range scope.Spans {
				one = append(one, s)
				if len(s.ParentSpanId) == 0 { // a change ends with its root
					all, one = append(all, one), nil
				}
			}
		}
	}
	return all
}

// change waits for a change, and returns its spans by name.
func (r *receiver) change(t *testing.T, wanted func(root *tracepb.Span) bool) map[string]*tracepb.Span {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(10 * time.Millisecond) {
		for _, spans := range r.traces() {
			if root := spans[len(spans)-1]; wanted(root) {
				named := map[string]*tracepb.Span{}
				for _, s := range spans {
					named[s.Name] = s
				}
				return named
			}
		}
	}
	t.Fatalf("the change did not arrive; %d others did", len(r.traces()))
	return nil
}

func (r *receiver) resource(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.got[0].Resource.Attributes {
		if a.Key == name {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

func valueOf(s *tracepb.Span, name string) *commonpb.AnyValue {
	for _, a := range s.GetAttributes() {
		if a.Key == name {
			return a.Value
		}
	}
	return nil
}

func causes(s *tracepb.Span) (all []string) {
	for _, v := range valueOf(s, "sluice.causes").GetArrayValue().GetValues() {
		all = append(all, v.GetStringValue())
	}
	return all
}

func running(t *testing.T, run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); run(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// applied is a change that took some time since its receipt.
func applied(name string, took time.Duration) aggregator.Applied {
	at := time.Now()
	return aggregator.Applied{Domain: domain4, At: at, Batched: at.Add(-took / 4), Batch: 7, Contribution: dataplane.Contribution{
		Key: service.Key{Namespace: "shop", Name: name}, Revision: service.Revision{Incarnation: 1, Sequence: 2}, Received: at.Add(-took),
		Trace: dataplane.Trace{Causes: dataplane.CauseEndpoints, Seen: dataplane.MomentOf(at.Add(-took * 3 / 4)), Rendered: dataplane.MomentOf(at.Add(-took / 2))},
	}}
}

// TestSampling_SlowAndRejectedAlways: slow changes and rejections are exported at any rate, and quick ones by the rate;
// changes of a startup do not count as slow.
func TestSampling_SlowAndRejectedAlways(t *testing.T) {
	to := newReceiver(t)
	none := New(config(to.URL, 0))
	none.stopMax = patience
	stop := running(t, none.Run)
	startup := applied("start", time.Minute)
	startup.Trace.Causes |= dataplane.CauseStart
	none.Aggregator(startup)
	none.Aggregator(applied("quick", time.Millisecond))
	none.Aggregator(applied("slow", 1100*time.Millisecond))
	failed := applied("bad", 5*time.Millisecond)
	none.Aggregator(aggregator.BatchWritten{Domain: domain4, Batch: &dataplane.Batch{Number: 9, Contributions: []dataplane.Contribution{failed.Contribution}},
		Receipt: dataplane.Receipt{Outcome: dataplane.Rejected, Err: errors.New("no"), Took: time.Millisecond}})
	none.Aggregator(aggregator.Quarantined{Domain: domain4, Key: failed.Key, Revision: failed.Revision, Reason: "the kernel says no", At: failed.At})
	stop() // which exports the rest
	got := to.traces()
	if len(got) != 2 {
		t.Fatalf("%d changes", len(got))
	}
	slow, bad := got[0], got[1][len(got[1])-1]
	if name := valueOf(slow[len(slow)-1], "k8s.service.name").GetStringValue(); name != "slow" || len(slow) != 5 {
		t.Errorf("%s with %d spans", name, len(slow)) // not of batch 7, so without write and ack
	}
	if valueOf(bad, "sluice.outcome").GetStringValue() != "quarantined" || bad.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR ||
		bad.Status.Message != "the kernel says no" || len(got[1]) != 7 || bad.EndTimeUnixNano-bad.StartTimeUnixNano != uint64(5*time.Millisecond) {
		t.Errorf("%d spans, %v", len(got[1]), bad)
	}

	const changes = 200_000
	tenth := New(config(to.URL, 100_000))
	sampled := 0
	for i := range changes {
		e := applied(fmt.Sprint(i), time.Millisecond)
		if tenth.sampled(tenth.id(&e.Contribution)) {
			sampled++
		}
	}
	if sampled < changes/11 || sampled > changes/9 {
		t.Errorf("%d of %d changes are sampled", sampled, changes)
	}
}

// TestTraceID_SameOnAllNodes: a change of endpoints has the same trace on all nodes, and any other change has one trace
// per node.
func TestTraceID_SameOnAllNodes(t *testing.T) {
	one := New(config("http://127.0.0.1:1", 0))
	c := config("http://127.0.0.1:1", 0)
	c.Node = "n2"
	two := New(c)
	e := applied("web", time.Millisecond)
	if one.id(&e.Contribution) == two.id(&e.Contribution) {
		t.Error("a change without a trigger has one trace on two nodes")
	}
	e.Trigger = time.Now()
	if one.id(&e.Contribution) != two.id(&e.Contribution) {
		t.Error("a change of endpoints has two traces")
	}
}

// TestReceiver_Hangs: with a receiver that hangs, the memory is limited, dropped changes are counted, and the end does
// not wait for the whole time of a request.
func TestReceiver_Hangs(t *testing.T) {
	to := newReceiver(t)
	to.held = make(chan struct{})
	defer close(to.held)
	c := config(to.URL, 1_000_000)
	var failures atomic.Int32
	c.Failed = func(error) { failures.Add(1) }
	traces := New(c)
	traces.stopMax = 100 * time.Millisecond
	stop := running(t, traces.Run)
	const changes = 20_000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range changes { // none waits for the receiver
		traces.Aggregator(applied("web", time.Millisecond))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	began := time.Now()
	stop()
	if took := time.Since(began); took >= requestMax {
		t.Errorf("the end took %v, as long as any request may", took)
	}
	if got := traces.Dropped(); got != changes || failures.Load() == 0 {
		t.Errorf("%d of %d changes are counted as dropped, %d failures are reported", got, changes, failures.Load())
	}
}

// TestReceiver_Rejects: a receiver that is absent, or rejects spans, is reported with the field of the configuration.
func TestReceiver_Rejects(t *testing.T) {
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	c := config(refusing.URL, 1_000_000)
	failed := make(chan error, 1)
	c.Failed = func(err error) { failed <- err }
	traces := New(c)
	traces.stopMax = patience
	stop := running(t, traces.Run)
	traces.Aggregator(applied("web", time.Millisecond))
	stop()
	want := "SluiceConfiguration.tracing.endpoint " + refusing.URL + `: traces export: HTTP status 404: "404 page not found\n"`
	if err := <-failed; err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestTraces_UnsampledAllocatesNothing: a change that is not sampled allocates nothing.
func TestTraces_UnsampledAllocatesNothing(t *testing.T) {
	traces := New(config("http://127.0.0.1:1", 0))
	var event aggregator.Event = applied("web", time.Millisecond)
	if n := testing.AllocsPerRun(1000, func() { traces.Aggregator(event) }); n > 0 {
		t.Errorf("%v allocations per change", n)
	}
	if len(traces.queue) != 0 {
		t.Error("a change is sampled at rate 0")
	}
}

// BenchmarkChange measures what a change costs the aggregator, by the rate per million at which changes are sampled.
func BenchmarkChange(b *testing.B) {
	to := newReceiver(b)
	for _, perMillion := range []int32{0, 10_000, 1_000_000} {
		b.Run(fmt.Sprint(perMillion), func(b *testing.B) {
			traces := New(config(to.URL, perMillion))
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() { defer close(done); traces.Run(ctx) }()
			e := applied("web", time.Millisecond)
			b.ReportAllocs()
			for b.Loop() {
				e.Received = e.Received.Add(1) // another trace
				traces.Aggregator(e)
			}
			b.ReportMetric(float64(traces.Dropped())/float64(b.N), "dropped/op")
			cancel()
			<-done
		})
	}
}
