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

// Aggregator records Services that a domain rejects and accepts again, Services that want a
// frontend that another one serves, and rules that another program has changed.
func (r *Recorder) Aggregator(event aggregator.Event) {
	switch e := event.(type) {
	case aggregator.Quarantined:
		r.warn(about(e.Key), "ServiceQuarantined", actionProgram,
			"%s rejects it; its previous rules stay in force: %s", e.Domain, e.Reason)
	case aggregator.Freed:
		r.normal(about(e.Key), "ServiceAccepted", actionProgram, "%s has accepted it again", e.Domain)
	case aggregator.Shadowed:
		r.record(about(e.Key), about(e.By), corev1.EventTypeWarning, "ServiceShadowed", actionProgram,
			"%s: Service %v, which is older, serves %v; change or delete one of them", e.Domain, e.By, e.Frontends)
	case aggregator.RepairBegan:
		r.warn(r.node, "RulesChanged", actionProgram, "%s: %s", e.Domain, undone(e))
	case aggregator.NodeAtFault:
		r.warn(r.node, "RulesRefused", actionProgram, "%s rejects rules that belong to no Service: %s", e.Domain, e.Reason)
	}
}

// undone describes what another program has changed.
func undone(e aggregator.RepairBegan) string {
	u, by := e.Undone, e.By.String()
	if by != "" {
		by = " changed by " + by + ":"
	}
	return fmt.Sprintf("restoring rules of %d Services:%s %d objects missing, %d different, %d unwanted (%s)",
		u.Services, by, u.Missing, u.Different, u.Unwanted, strings.Join(e.Examples, "; "))
}

// Supervisor records Services whose actor is parked.
func (r *Recorder) Supervisor(event supervisor.Event[service.Key]) {
	if e, parked := event.What.(supervisor.Parked); parked {
		key := event.Child
		if key == service.Node {
			r.warn(r.node, "ActorParked", actionProgram, "the node's own rules stay as they are until %v: %v", e.Until, e.Err)
			return
		}
		r.warn(about(key), "ActorParked", actionProgram, "its rules stay as they are until %v: %v", e.Until, e.Err)
	}
}

// Actors records Services that there was no room for. The log and health report when one of them is
// deleted; events about it would have no reader.
func (r *Recorder) Actors(event actors.Event) {
	if e, refused := event.(actors.Refused); refused {
		r.warn(about(e.Key), "ServiceRefused", actionProgram, "there are more Services than this proxy may serve")
	}
}
