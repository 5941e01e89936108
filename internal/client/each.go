// Package client has what the commands share that ask the proxy of this node through its socket, those of all nodes
// through the API server, or the health servers. One node is a list of one target. The package asks many proxies, merges
// their records of connections, waits until an endpoint is out of the rules everywhere, and has common flags.
package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/internal/sleep"
)

// ErrNoAnswer is the error of a proxy that was not asked before the context ended.
var ErrNoAnswer = errors.New("no answer yet")

// Each asks all proxies, at most parallel at a time. Ask returns whether the same proxy is to be asked again, and after
// which pause. Each returns when no proxy is left or the context has ended, and all calls of ask have returned.
func Each(ctx context.Context, parallel, all int, ask func(ctx context.Context, i int) (again bool, pause time.Duration)) {
	places := make(chan struct{}, parallel)
	var working sync.WaitGroup
	for i := range all {
		working.Go(func() {
			for again, pause := true, time.Duration(0); again; {
				if !sleep.For(ctx, pause) {
					return
				}
				select {
				case places <- struct{}{}:
				case <-ctx.Done():
					return
				}
				again, pause = ask(ctx, i)
				<-places
			}
		})
	}
	working.Wait()
}
