// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/observe/web"
)

// holderAgain is the pause before the holder of an address is looked up and reported again.
const holderAgain = time.Minute

// portConflicts records the listen addresses of this process that other processes hold.
type portConflicts struct {
	log *zap.Logger
	// handing reports whether another proxy is handing its addresses over.
	handing func() bool
	// told emits the event.
	told func(problem string)

	mu    sync.Mutex
	taken map[string]state.Finding // by the field of the configuration
}

// listening returns a function that a server at an address calls with the outcome of each
// attempt to listen. The address is named by its field of the configuration.
func (c *portConflicts) listening(field, address string) func(error) {
	var saidAt time.Time
	handing := false
	return func(err error) {
		switch now := time.Now(); {
		case err == nil:
			if c.free(field) {
				c.log.Info("listen address free; listening", zap.String(field, address))
			}
			saidAt, handing = time.Time{}, false
		case !errors.Is(err, syscall.EADDRINUSE):
		case c.handing():
			if !handing {
				handing = true
				c.log.Info("waiting for the other proxy to release a listen address", zap.String(field, address))
			}
		case now.Sub(saidAt) >= holderAgain:
			saidAt = now
			problem := fmt.Sprintf("%s %s is held by %s", field, address, holderIn(err))
			if c.set(field, state.Finding{Kind: health.AddressTaken, About: field, Since: now, Problem: problem}) {
				c.log.Warn("listen address already in use; retrying", zap.String("problem", problem))
				c.told(problem)
			}
		}
	}
}

// holderIn returns the holder that an error names.
func holderIn(err error) string {
	if taken, ok := errors.AsType[*web.TakenError](err); ok {
		return cmp.Or(taken.Holder(), unknownHolder)
	}
	return unknownHolder
}

const unknownHolder = "a process that cannot be found"

// free forgets a finding, and reports whether there was one.
func (c *portConflicts) free(field string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.taken[field]
	delete(c.taken, field)
	return known
}

// set records a finding, and reports whether it is new.
func (c *portConflicts) set(field string, f state.Finding) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	former, known := c.taken[field]
	if known && former.Problem == f.Problem {
		return false
	}
	if c.taken == nil {
		c.taken = map[string]state.Finding{}
	}
	c.taken[field] = f
	return true
}

// findings lists the addresses that other processes hold.
func (c *portConflicts) findings() (all []state.Finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.taken {
		all = append(all, f)
	}
	slices.SortFunc(all, func(x, y state.Finding) int { return x.Since.Compare(y.Since) })
	return all
}
