// Package events reports to the API server, as events.k8s.io/v1 objects, what people look for with
// kubectl: that the proxy has started, and what someone responsible for a Service or a node can
// fix. The daemon makes one [Recorder]; it is an observe.Listener, and the daemon calls it directly
// for what no part of the core announces.
package events

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"

	"github.com/sluice-proxy/sluice/service"
)

// controller is the reporting controller. It is kube-proxy's name, so that selectors for its events
// find ours.
const controller = "kube-proxy"

// The actions of events: what the proxy was doing.
const (
	actionStart     = "StartKubeProxy"
	actionListen    = "Listen"
	actionProgram   = "Program"
	actionConfigure = "Configure"
)

// Recorder records events. It implements observe.Listener. Without a client (with manifests instead
// of an API server) it drops them.
//
// Concurrency: all methods are safe for concurrent use. They return at once, except for
// HealthcheckFailed and MetricsFailed, and drop what the API server does not accept in time.
type Recorder struct {
	node *corev1.ObjectReference
	// recorder is nil without a client.
	recorder events.EventRecorder
	sink     *sink
}

// New makes a recorder for a node. It sends events until the context ends. With a nil client it
// drops them.
func New(ctx context.Context, client *rest.Config, node string) (*Recorder, error) {
	r := &Recorder{node: &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node}}
	if client == nil {
		return r, nil
	}
	api, err := typedv1.NewForConfig(client)
	if err != nil {
		return nil, fmt.Errorf("client for events: %w", err)
	}
	r.sink = &sink{EventSink: &events.EventSinkImpl{Interface: api}}
	broadcaster := events.NewBroadcaster(r.sink)
	// Before the first event: the broadcaster forgets events without a listener, which is how
	// kube-proxy loses those of its start.
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, fmt.Errorf("record events: %w", err)
	}
	context.AfterFunc(ctx, broadcaster.Shutdown)
	r.recorder = broadcaster.NewRecorder(scheme.Scheme, controller)
	return r, nil
}

// Starting records that the proxy starts on this node.
func (r *Recorder) Starting() { r.normal(r.node, "Starting", actionStart, "") }

// Reloaded records that a changed configuration is in force that took a new server in the running
// process. The argument names the fields.
func (r *Recorder) Reloaded(fields string) {
	r.normal(r.node, "Reloaded", actionConfigure, "configuration in force: %s", fields)
}

// HealthcheckFailed records that the process cannot listen on the healthz address, which ends it.
// It waits up to 2 s for the API server to accept the event.
func (r *Recorder) HealthcheckFailed(err error) {
	r.recordLast("FailedToStartProxierHealthcheck", actionStart, err)
}

// MetricsFailed records the same of the metrics address, and waits as well.
func (r *Recorder) MetricsFailed(err error) {
	r.recordLast("FailedToStartMetricServer", actionStart, err)
}

// RivalSeen records that another proxy works on this node.
func (r *Recorder) RivalSeen(who string) {
	r.warn(r.node, "RivalProxy", actionProgram, "another proxy on this node writes rules as well; stop one of them: %s", who)
}

// AddressTaken records that another program has an address; the server retries.
func (r *Recorder) AddressTaken(problem string) {
	r.warn(r.node, "AddressTaken", actionListen, "%s", problem)
}

// HealthPortFailed records that the process cannot listen on a Service's health-check node port.
func (r *Recorder) HealthPortFailed(key service.Key, err error) {
	r.warn(about(key), "FailedToStartServiceHealthcheck", actionListen, "%v", err)
}

// ConfigurationRefused records that a change of the configuration file is rejected, and why.
func (r *Recorder) ConfigurationRefused(err error) {
	r.warn(r.node, "ConfigurationRefused", actionConfigure, "the previous configuration stays in force: %v", err)
}

// Warn records that an annotation of a Service has no effect. Other problems of objects are only
// logged: the API server lets few of them through, and every node of a cluster would report them.
func (r *Recorder) Warn(w service.Warning) {
	key, ok := strings.CutPrefix(w.Object, "Service ")
	if !ok || !strings.HasPrefix(w.Field, "metadata.annotations") {
		return
	}
	r.warn(about(service.ParseKey(key)), "AnnotationIgnored", actionProgram, "%s: %s", w.Field, w.Message())
}

func (r *Recorder) normal(regarding runtime.Object, reason, action, note string, args ...any) {
	r.record(regarding, nil, corev1.EventTypeNormal, reason, action, note, args...)
}

func (r *Recorder) warn(regarding runtime.Object, reason, action, note string, args ...any) {
	r.record(regarding, nil, corev1.EventTypeWarning, reason, action, note, args...)
}

// noteMax is the longest note that the API accepts (events.k8s.io/v1, note), in bytes.
const noteMax = 1024

// record records an event. Related is a second object that it is about; it may be nil.
func (r *Recorder) record(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	if r.recorder == nil {
		return
	}
	text := fmt.Sprintf(note, args...)
	if len(text) > noteMax {
		text = text[:noteMax-len(ellipsis)] + ellipsis
	}
	r.recorder.Eventf(regarding, related, kind, reason, action, "%s", text)
}

const ellipsis = "…"

// about refers to a Service by name. No part of the proxy keeps UIDs.
func about(key service.Key) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: key.Namespace, Name: key.Name}
}

// lastEventWait bounds the wait for the API server to accept the last event of a process.
const lastEventWait = 2 * time.Second

// sink sends events to the API server, and signals when it has accepted or rejected those with a
// certain reason.
type sink struct {
	events.EventSink
	sent sync.Map // reason to chan struct{}, which is closed
}

// Create sends an event.
func (s *sink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	created, err := s.EventSink.Create(ctx, event)
	if sent, waited := s.sent.LoadAndDelete(event.Reason); waited {
		close(sent.(chan struct{}))
	}
	return created, err
}

// recordLast records what is about to end the process, and waits for it to arrive. Events are sent
// asynchronously, so it would be lost otherwise.
func (r *Recorder) recordLast(reason, action string, err error) {
	if r.recorder == nil {
		return
	}
	sent := make(chan struct{})
	r.sink.sent.Store(reason, sent)
	r.warn(r.node, reason, action, "%v", err)
	select {
	case <-sent:
	case <-time.After(lastEventWait):
	}
}
