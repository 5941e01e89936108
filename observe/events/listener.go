package events

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/supervisor"
)

// The recorder is an observe.Listener: it tells of what somebody who looks after a
// Service or a node can mend.

// Aggregator records Services that the kernel refuses, and when they are accepted
// again, those that want an address that another one serves, and rules that
// somebody else has changed.
func (r *Recorder) Aggregator(event aggregator.Event) {
	switch e := event.(type) {
	case aggregator.Quarantined:
		r.warn(about(e.Key), "ServiceQuarantined", actionProgram,
			"%s refuses it; what it had before stays in force: %s", e.Domain, e.Reason)
	case aggregator.Freed:
		r.normal(about(e.Key), "ServiceAccepted", actionProgram, "%s has accepted it again", e.Domain)
	case aggregator.Shadowed:
		r.record(about(e.Key), about(e.By), corev1.EventTypeWarning, "ServiceShadowed", actionProgram,
			"%s: Service %v, which is older, serves %v; change or delete either", e.Domain, e.By, e.Frontends)
	case aggregator.RepairBegan:
		r.warn(r.node, "RulesChanged", actionProgram, "%s: %s", e.Domain, undone(e))
	case aggregator.NodeAtFault:
		r.warn(r.node, "RulesRefused", actionProgram, "%s refuses rules that belong to no Service: %s", e.Domain, e.Reason)
	}
}

// undone says what somebody else has changed.
func undone(e aggregator.RepairBegan) string {
	u, by := e.Undone, e.By.String()
	if by != "" {
		by = " changed by " + by + ":"
	}
	return fmt.Sprintf("rules of %d Services are written again:%s %d objects missing, %d different, %d unwanted (%s)",
		u.Services, by, u.Missing, u.Different, u.Unwanted, strings.Join(e.Examples, "; "))
}

// Supervisor records Services whose actor has been given up for now.
func (r *Recorder) Supervisor(event supervisor.Event[service.Key]) {
	if e, parked := event.What.(supervisor.Parked); parked {
		key := event.Child
		if key == service.Node {
			r.warn(r.node, "ActorParked", actionProgram, "the node's own rules are not brought up to date before %v: %v", e.Until, e.Err)
			return
		}
		r.warn(about(key), "ActorParked", actionProgram, "its rules stay as they are before %v: %v", e.Until, e.Err)
	}
}

// Actors records Services for which there was no room. Nobody looks at the events
// of one that has been deleted since, so that is for the log and for health.
func (r *Recorder) Actors(event actors.Event) {
	if e, refused := event.(actors.Refused); refused {
		r.warn(about(e.Key), "ServiceRefused", actionProgram, "there are more Services than this proxy is allowed to serve")
	}
}
