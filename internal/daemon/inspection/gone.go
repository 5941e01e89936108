// SPDX-License-Identifier: Apache-2.0

package inspection

import (
	"context"
	"slices"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/internal/daemon/gone"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/service"
)

// Gone reports whether an endpoint gets no new connections.
func (i *Inspection) Gone(ctx context.Context, q inspect.GoneQuery) *inspect.Gone {
	a := i.Leaving.Ask(ctx, q.At, q.Wait)
	made := &inspect.Gone{Endpoint: inspect.EndpointText(q.At), Gone: a.Gone(), At: a.At.UTC(), More: a.More}
	if a.Err != nil {
		made.Reason = a.Err.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerTime)
	defer cancel()
	for _, by := range a.By {
		made.Services = append(made.Services, i.sender(ctx, by))
	}
	return made
}

// sender describes the state of a Service that sends connections to an endpoint.
func (i *Inspection) sender(ctx context.Context, by gone.Sender) inspect.Sender {
	made := inspect.Sender{Service: by.Key.String(), Domain: by.Domain, State: "applied"}
	if by.Key == service.Node {
		made.Service = "the node"
	}
	if account, err := i.Proxy.Account(ctx, by.Domain, by.Key, 0); err == nil && (account.Pending || account.Queued) {
		made.State = "pending"
	}
	for _, status := range i.Proxy.Status() {
		if status.Domain == by.Domain && slices.ContainsFunc(status.Quarantined, func(q aggregator.QuarantinedKey) bool { return q.Key == by.Key }) {
			made.State = "held"
		}
	}
	return made
}
