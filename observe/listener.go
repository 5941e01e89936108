package observe

import (
	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/supervisor"
)

// Listener is told everything that happens, by the goroutines that it happens
// to: several at once, so it must be safe for that, and it must not block.
type Listener interface {
	Supervisor(supervisor.Event[service.Key])
	Aggregator(aggregator.Event)
	Actors(actors.Event)
}
