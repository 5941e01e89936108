// SPDX-License-Identifier: Apache-2.0

// Package client is shared by the commands that query the proxy of this node through its socket, those of all nodes
// through the API server, or the health servers. One node is a list of one target. The package queries many proxies,
// merges their records of connections, waits until no rules contain an endpoint, and defines common flags.
package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/internal/inspect"
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

// silence is how long a query must be unanswered before WaitApplied reports that instead of the previous answer.
const silence = time.Second

// WaitApplied calls ask until it returns no error, or until the time most is over. It ends immediately if the command
// line is wrong, or if a proxy does not answer although time is left. Ask also returns the pause before the next call.
func WaitApplied(ctx context.Context, most time.Duration, ask func(context.Context) (time.Duration, error)) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	reason, again := ErrNoAnswer, true
	Each(ctx, 1, 1, func(ctx context.Context, _ int) (bool, time.Duration) {
		asked := time.Now()
		pause, err := ask(ctx)
		again = err != nil && !errors.As(err, new(inspect.UsageError)) && !hung(ctx, err)
		silent := errors.As(err, new(*inspect.Silent)) && time.Since(asked) > silence
		if !again || ctx.Err() == nil || silent || errors.Is(reason, ErrNoAnswer) { // otherwise, the timeout cut the query
			reason = err
		}
		return again, pause
	})
	if again {
		return fmt.Errorf("not applied after %v: %w", most, reason)
	}
	return reason
}
