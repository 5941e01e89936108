// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane/nftables/hooks"
	"github.com/sluice-proxy/sluice/internal/daemon/part"
	"github.com/sluice-proxy/sluice/internal/sleep"
)

// hooksEvery is the pause between two looks whether the kernel has the tables of package hooks.
const hooksEvery = 10 * time.Second

// hooksPart is nil in userspace mode, which translates nothing.
func (s *server) hooksPart() *part.Part {
	if s.backend.Mode.Forwards {
		return nil
	}
	return &part.Part{Name: "hooks", When: part.Synced, Run: part.Always(s.keepHooks)}
}

// keepHooks lets open connections survive a flush of all rules by another process, until the context ends. Between two
// servers of this process, or two processes, the tables are missing for a moment, in which the rules keep the hooks.
func (s *server) keepHooks(ctx context.Context) {
	var holder hooks.Holder
	defer holder.Close() // the kernel removes the tables with the process in any case
	for told := false; ctx.Err() == nil; sleep.For(ctx, hooksEvery) {
		if err := holder.Keep(ctx, s.host.Families()); err != nil && !told && ctx.Err() == nil {
			told = true
			s.log.Info("cannot keep the kernel's NAT hooks; a flush of all rules by another process resets open connections", zap.Error(err))
		}
	}
}
