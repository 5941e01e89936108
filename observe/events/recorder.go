// SPDX-License-Identifier: Apache-2.0

// Package events reports to the API server, as events.k8s.io/v1 objects, what people look for with
// kubectl: that the proxy has started, and what someone responsible for a Service or a node can
// fix. The daemon makes one [Recorder]; it is an observe.Listener, and the daemon calls it directly
// for what no part of the core announces.
package events

import (
	"context"
	"fmt"
	"hash/fnv"
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
	"k8s.io/client-go/util/flowcontrol"

	"github.com/sluice-proxy/sluice/observe/state"
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

// The rate of events, per second and as a burst. It is far below what a cluster's API server accepts
// from all nodes together, and a tenant can cause any number of events.
const (
	rate  = 1
	burst = 25
)

const (
	// requestMax bounds a request, so that requests do not pile up while the API server does not answer.
	requestMax = 10 * time.Second
	// reporterRetry is how often to look for the node that reports an event, and reporterWait for how
	// long: a new Service has no endpoints yet.
	reporterRetry = 2 * time.Second
	reporterWait  = 10 * time.Minute
)

// Config configures a Recorder.
type Config struct {
	// Client is how to reach the API server. Its rate limiter is not used: events never delay other
	// requests. Nil drops all events.
	Client *rest.Config
	// Node is the name of this node.
	Node string
	// Reporter returns the node that reports what every node finds about a Service; empty if it cannot
	// tell yet. It must not block. Nil means this node.
	Reporter func(service.Key) (node string)
	// Memory remembers all events, also those that are not sent. It may be nil.
	Memory *Memory
}

// Recorder records events. It implements observe.Listener. Without a client (with manifests instead
// of an API server) it drops them.
//
// Concurrency: all methods are safe for concurrent use. They return immediately, except for
// HealthcheckFailed and MetricsFailed. Events beyond the rate wait in a bounded queue, which drops those that do not
// fit; see Dropped. The API client drops events that the server does not accept in time.
type Recorder struct {
	config Config
	// recorder and queue are nil without a client.
	recorder events.EventRecorder
	queue    *queue
	sink     *sink
}

// New makes a recorder for a node. It sends events until the context ends.
func New(ctx context.Context, config Config) (*Recorder, error) {
	r := &Recorder{config: config}
	if config.Client == nil {
		return r, nil
	}
	client := rest.CopyConfig(config.Client)
	// The queue keeps the rate. This limit is for what client-go sends later: the ends of series.
	client.RateLimiter, client.QPS, client.Burst = nil, 5*rate, burst
	client.Timeout = requestMax
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
	r.queue = newQueue()
	go r.run(ctx, flowcontrol.NewTokenBucketRateLimiter(rate, burst))
	return r, nil
}

// Dropped returns the number of events that were not sent since New: the queue was full, or no node
// was found that reports them.
func (r *Recorder) Dropped() uint64 {
	if r.queue == nil {
		return 0
	}
	return r.queue.dropped.Load()
}

// run sends the events of the queue until the context ends.
func (r *Recorder) run(ctx context.Context, limit flowcontrol.RateLimiter) {
	for ctx.Err() == nil {
		e, found, wait := r.queue.next(time.Now())
		switch {
		case !found:
			select {
			case <-ctx.Done():
			case <-r.queue.added:
			case <-time.After(wait):
			}
		case r.reports(e) && limit.Wait(ctx) == nil:
			r.recorder.Eventf(r.about(e.key), e.related, e.kind, e.reason, e.action, "%s", e.note)
		}
	}
}

// reports reports whether this node sends an event. As long as that is unknown, the event waits.
func (r *Recorder) reports(e entry) bool {
	if !e.shared || r.config.Reporter == nil {
		return true
	}
	node := r.config.Reporter(e.key)
	if now := time.Now(); node == "" && now.Before(e.expires) {
		e.due = now.Add(reporterRetry)
		r.queue.add(e)
	} else if node == "" {
		r.queue.dropped.Add(1)
	}
	return node == r.config.Node
}

// Starting records that the proxy starts on this node.
func (r *Recorder) Starting() { r.normal(service.Node, reasonStarting, actionStart, "") }

// DefaultMode records that the configuration names no mode, and the selected one.
func (r *Recorder) DefaultMode(mode string) {
	r.warn(service.Node, reasonDefaultMode, actionStart, "mode not set; using %s", mode)
}

// IPVS records that the proxy uses a mode that kube-proxy will not have.
func (r *Recorder) IPVS() {
	r.warn(service.Node, reasonIPVS, actionStart,
		"kube-proxy disables IPVS mode by default in v1.40 and removes it in v1.43; consider nftables mode")
}

// Reloaded records that a changed configuration is applied for which the process started a new server. The argument
// names the fields.
func (r *Recorder) Reloaded(fields string) {
	r.normal(service.Node, reasonReloaded, actionConfigure, "configuration applied: %s", fields)
}

// HealthcheckFailed records that the process cannot listen on the healthz address, which ends it.
// It waits up to 2 s for the API server to accept the event.
func (r *Recorder) HealthcheckFailed(err error) {
	r.recordLast(reasonHealthServerFailed, actionStart, err)
}

// MetricsFailed does for the metrics address what HealthcheckFailed does for the healthz address.
func (r *Recorder) MetricsFailed(err error) {
	r.recordLast(reasonMetricsServerFailed, actionStart, err)
}

// ConfigurationHeld records that a changed configuration file is not applied, and why.
func (r *Recorder) ConfigurationHeld(problem string) {
	r.warn(service.Node, reasonConfigurationHeld, actionConfigure, "%s", problem)
}

// AddressTaken records that another program has an address; the server retries.
func (r *Recorder) AddressTaken(problem string) {
	r.warn(service.Node, reasonAddressTaken, actionListen, "%s", problem)
}

// HealthPortFailed records that the process cannot listen on a Service's health-check node port.
func (r *Recorder) HealthPortFailed(key service.Key, err error) {
	r.warn(key, reasonHealthPortFailed, actionListen, "%v", err)
}

// EndpointSuspect records that this node avoids an endpoint that does not answer.
func (r *Recorder) EndpointSuspect(key service.Key, endpoint string) {
	r.warn(key, reasonSuspect, actionProgram, "endpoint %s does not answer; it gets no new connections from this node", endpoint)
}

// ConfigurationRejected records that a change of the configuration file is rejected, and why.
func (r *Recorder) ConfigurationRejected(err error) {
	r.warn(service.Node, reasonConfigurationRejected, actionConfigure, "rejected invalid configuration; keeping the previous one: %v", err)
}

// Warn records that an annotation of a Service has no effect. Other problems of objects are only
// logged: the API server lets few of them through, and every node of a cluster would report them.
func (r *Recorder) Warn(w service.Warning) {
	key, ok := strings.CutPrefix(w.Object, "Service ")
	if !ok || !strings.HasPrefix(w.Field, "metadata.annotations") {
		return
	}
	r.warnOnce(service.ParseKey(key), nil, reasonAnnotationIgnored, actionProgram, "%s: %s", w.Field, w.Message())
}

func (r *Recorder) normal(key service.Key, reason, action, note string, args ...any) {
	r.record(entry{key: key, kind: corev1.EventTypeNormal, reason: reason, action: action, note: fmt.Sprintf(note, args...)})
}

func (r *Recorder) warn(key service.Key, reason, action, note string, args ...any) {
	r.record(entry{key: key, kind: corev1.EventTypeWarning, reason: reason, action: action, note: fmt.Sprintf(note, args...)})
}

// warnOnce is warn for what follows from API objects alone: every node finds it, and one reports it.
// Related is a second object; it may be nil.
func (r *Recorder) warnOnce(key service.Key, related runtime.Object, reason, action, note string, args ...any) {
	r.record(entry{key: key, related: related, kind: corev1.EventTypeWarning, reason: reason, action: action,
		note: fmt.Sprintf(note, args...), shared: true})
}

// noteMax is the longest note that the API accepts (events.k8s.io/v1, note), in bytes.
const noteMax = 1024

// record remembers an event, and queues it.
func (r *Recorder) record(e entry) {
	e.note = service.Cut(e.note, noteMax)
	of := state.Event{Time: time.Now().UTC(), Type: e.kind, Reason: e.reason, Namespace: e.key.Namespace, About: "Service", Object: e.key.Name, Note: e.note}
	if e.key == service.Node {
		of.About, of.Object = "Node", r.config.Node
	}
	r.config.Memory.add(&of)
	if r.recorder == nil {
		return
	}
	e.action = incident(e.action, e.note)
	e.expires = time.Now().Add(reporterWait)
	r.queue.add(e)
}

// incident returns the action of an incident: the action, and a hash of the note. client-go takes
// events that differ in the note alone for one series, and shows the note of the first. A start is
// one incident, and its action is kube-proxy's.
func incident(action, note string) string {
	if note == "" || action == actionStart {
		return action
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(note))
	return fmt.Sprintf("%s-%08x", action, hash.Sum32())
}

// about refers to a Service by name, or to the Node. No part of the proxy keeps UIDs.
func (r *Recorder) about(key service.Key) runtime.Object {
	if key == service.Node {
		return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: r.config.Node}
	}
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
	r.warn(service.Node, reason, action, "%v", err)
	select {
	case <-sent:
	case <-time.After(lastEventWait):
	}
}
