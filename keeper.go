package proxy

import (
	"context"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
)

// keeper lets the directory use the supervisor without knowing it.
type keeper struct {
	supervisor *supervisor.Supervisor[service.Key]
}

// Want asks for someone to live at a key.
func (k keeper) Want(key service.Key, body actors.Body) {
	k.supervisor.Want(key, func(ctx context.Context, lease *supervisor.Lease) error { return body(ctx, lease) })
}

// Nudge tells that a key has new input.
func (k keeper) Nudge(key service.Key) { k.supervisor.Nudge(key) }

// truth is where actors read the current state: Services from the source's cache,
// and the facts. The cache has nothing under the node's own key.
type truth struct {
	*source.Cache
	facts *facts
}

// Facts returns this node's facts.
func (t truth) Facts() *service.NodeFacts { return t.facts.current.Load() }
