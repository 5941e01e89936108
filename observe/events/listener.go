// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
)

// Aggregator records Services that a domain rejects or accepts again, and rules that another process
// changed.
func (r *Recorder) Aggregator(event aggregator.Event) {
	switch e := event.(type) {
	case aggregator.Quarantined:
		if e.Key == service.Node {
			r.warn(service.Node, reasonRulesRejected, actionProgram, "node-wide rules rejected by %s; keeping the previous rules: %s", e.Domain, e.Reason)
			return
		}
		format := "rules rejected by %s; keeping the previous rules: %s"
		if e.Cause == aggregator.DoesNotLand {
			format = "writes to %s fail; keeping the previous rules: %s"
		}
		r.warn(e.Key, reasonQuarantined, actionProgram, format, e.Domain, e.Reason)
	case aggregator.Freed:
		if e.Key == service.Node {
			return // events of the node report problems only
		}
		r.normal(e.Key, reasonAccepted, actionProgram, "accepted by %s again", e.Domain)
	case aggregator.RepairBegan:
		r.warn(service.Node, reasonRulesChanged, actionProgram, "%s: %s", e.Domain, undone(e))
	case aggregator.NodeAtFault:
		r.warn(service.Node, reasonRulesRejected, actionProgram, "node-wide rules rejected by %s: %s", e.Domain, e.Reason)
	}
}

// Source records Services that request a frontend of another Service. The event names the owner only
// if both are in one namespace: a tenant must not learn who else has an address. The log of the node
// names both.
func (r *Recorder) Source(e source.Shadowed) {
	if e.Over {
		return
	}
	by, related := "another Service", runtime.Object(nil)
	if e.By.Namespace == e.Key.Namespace {
		by, related = "Service "+e.By.String(), r.about(e.By)
	}
	r.warnOnce(e.Key, related, reasonShadowed, actionProgram,
		"address conflict: %s owns %v", by, e.Frontends)
}

// undone describes the rules that another process changed.
func undone(e aggregator.RepairBegan) string {
	u, by := e.Undone, e.By.String()
	if by != "" {
		by = " changed by " + by + ":"
	}
	return fmt.Sprintf("restoring rules of %s:%s %s missing, %d different, %d unwanted (%s)",
		plural.Of(u.Services, "Service"), by, plural.Of(u.Missing, "object"), u.Different, u.Unwanted, strings.Join(e.Examples, "; "))
}

// Supervisor records Services whose actor is parked.
func (r *Recorder) Supervisor(event supervisor.Event[service.Key]) {
	if e, parked := event.What.(supervisor.Parked); parked {
		what := "actor"
		if event.Child == service.Node {
			what = "actor of node-wide rules"
		}
		r.warn(event.Child, reasonParked, actionProgram, "%s parked until %v; keeping the previous rules: %v", what, e.Until.UTC().Format(time.RFC3339), e.Err)
	}
}

// Actors records Services that exceed the object limit. The log and health report when one no longer
// does.
func (r *Recorder) Actors(event actors.Event) {
	if e, large := event.(actors.TooLarge); large {
		r.warnOnce(e.Key, nil, reasonTooLarge, actionProgram,
			"object limit exceeded over %v: %d objects, limit %d; frontends left out: %d", e.Family, e.Objects, e.Max, e.LeftOut)
	}
}
