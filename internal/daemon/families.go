// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

// unservedFamily checks whether the Node has an InternalIP of a family that this server does not serve. If so at
// startup, the startup fails, but the Node may be unknown then, or get the address later.
type unservedFamily struct {
	backend *setup.Backend
	// node returns the Node object as it is now; nil if it is unknown.
	node func() *service.NodeObject

	mu sync.Mutex
	// since is when the Node was first seen with such an address; zero without one.
	since time.Time
}

// findings looks at the Node as it is now.
func (u *unservedFamily) findings() []state.Finding {
	node := u.node()
	if node != nil && node.Deleted {
		node = nil // it has no addresses any more
	}
	err := u.backend.Unserved(node)
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil {
		u.since = time.Time{}
		return nil
	}
	if u.since.IsZero() {
		u.since = time.Now()
	}
	problem := strings.ReplaceAll(errors.Unwrap(err).Error(), "\n", "; ")
	return []state.Finding{{Kind: health.FamilyNotServed, Since: u.since, Problem: problem}}
}
