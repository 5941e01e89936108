package events

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	eventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"

	"github.com/sluice-proxy/sluice/service"
)

// controller is the reporting controller; kube-proxy's name, so that what
// selects its events finds ours.
const controller = "kube-proxy"

// What was being done when something happened (the event's action).
const (
	actionStart     = "StartKubeProxy"
	actionListen    = "Listen"
	actionProgram   = "Program"
	actionConfigure = "Configure"
)

// Recorder records events. A recorder without a client (manifests instead of an
// API server) drops them.
//
// Concurrency: every method may be called from anywhere and, but for the two that
// are the last word of a process, returns at once; what
// the API server does not take in time is dropped.
type Recorder struct {
	node *corev1.ObjectReference
	// recorder is nil without a client.
	recorder events.EventRecorder
	sink     *sink
}

// New makes a recorder for a node, which sends what it is told until the context
// ends. A nil client makes one that drops everything.
func New(ctx context.Context, client *rest.Config, node string) (*Recorder, error) {
	r := &Recorder{node: &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node}}
	if client == nil {
		return r, nil
	}
	api, err := eventsv1.NewForConfig(client)
	if err != nil {
		return nil, fmt.Errorf("client for events: %w", err)
	}
	r.sink = &sink{EventSink: &events.EventSinkImpl{Interface: api}}
	broadcaster := events.NewBroadcaster(r.sink)
	// Before the first event: the broadcaster forgets what nobody listens to,
	// which is how kube-proxy loses what it says at its start.
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, fmt.Errorf("record events: %w", err)
	}
	context.AfterFunc(ctx, broadcaster.Shutdown)
	r.recorder = broadcaster.NewRecorder(scheme.Scheme, controller)
	return r, nil
}

// Starting says that the proxy begins to work on this node.
func (r *Recorder) Starting() { r.normal(r.node, "Starting", actionStart, "") }

// Reloaded says that a changed configuration is in force for which everything was
// made anew in the running process, and names the fields.
func (r *Recorder) Reloaded(fields string) {
	r.normal(r.node, "Reloaded", actionConfigure, "configuration in force: %s", fields)
}

// HealthcheckFailed says that the healthz address cannot be listened on, which ends
// the process: it waits up to 2 s for the API server to take it.
func (r *Recorder) HealthcheckFailed(err error) {
	r.lastWord("FailedToStartProxierHealthcheck", actionStart, err)
}

// MetricsFailed says that of the metrics address, and waits likewise.
func (r *Recorder) MetricsFailed(err error) {
	r.lastWord("FailedToStartMetricServer", actionStart, err)
}

// RivalSeen says that another proxy works on this node besides.
func (r *Recorder) RivalSeen(who string) {
	r.warn(r.node, "RivalProxy", actionProgram, "another proxy on this node writes rules, too; stop either: %s", who)
}

// AddressTaken says that an address cannot be listened on; that is tried again.
func (r *Recorder) AddressTaken(problem string) {
	r.warn(r.node, "AddressTaken", actionListen, "%s", problem)
}

// HealthPortFailed says that a Service's health-check node port cannot be
// listened on.
func (r *Recorder) HealthPortFailed(key service.Key, err error) {
	r.warn(about(key), "FailedToStartServiceHealthcheck", actionListen, "%v", err)
}

// ConfigurationRefused says that a change of the configuration file is not obeyed,
// and why.
func (r *Recorder) ConfigurationRefused(err error) {
	r.warn(r.node, "ConfigurationRefused", actionConfigure, "the former configuration stays in force: %v", err)
}

// Warn says that an annotation of a Service cannot be obeyed. What else may be
// wrong with objects is in the log alone: the API server lets little of it through,
// and every node of a cluster would say it.
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

// noteMax is the longest note that the API takes (events.k8s.io/v1, note).
const noteMax = 1024

// record records an event; related is a second object that it is about, nil for
// none.
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

// about refers to a Service by name; what it was about is clear without a UID,
// which no part of a proxy keeps.
func about(key service.Key) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: key.Namespace, Name: key.Name}
}
