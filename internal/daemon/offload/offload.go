// SPDX-License-Identifier: Apache-2.0

// Package offload moves established TCP connections to Services into a flowtable of the kernel.
package offload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/host/hostaddress"
	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/observe/state"
)

// Offload moves established TCP connections to Services into a flowtable over the node's devices, as long as it
// runs. Nothing depends on it: after any failure, the connections go on through the rules.
type Offload struct {
	// Mode is the mode that serves. Unable means that it cannot offload.
	Mode   config.Mode
	Unable bool
	Log    *zap.Logger

	mu    sync.Mutex
	state state.Offload
}

// Check returns an error if the kernel cannot offload connections. It changes nothing.
func Check() error { return nftkernel.CheckOffload() }

// State returns the current state.
func (o *Offload) State() state.Offload {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state
}

// Run offloads until the context ends. The caller runs it once the rules are written. It gives up if this node
// cannot offload, and tries again after any other failure.
func (o *Offload) Run(ctx context.Context) {
	if o.Unable {
		o.note(0, fmt.Errorf("mode %s cannot offload connections; nftables mode can", o.Mode))
		return
	}
	if err := Check(); err != nil {
		o.note(0, err)
		if _, missing := errors.AsType[*nftkernel.NoOffloadError](err); missing {
			return
		}
	}
	sleep.Retry(ctx, func() {
		if err := o.follow(ctx); err != nil && ctx.Err() == nil {
			o.note(0, err)
		}
	})
}

// follow makes the devices of the flowtable those of the node, until the context ends or the kernel rejects all.
func (o *Offload) follow(ctx context.Context) error {
	table, err := nftkernel.NewOffload()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err = hostaddress.WatchLinks(ctx, func(links []hostaddress.Link) {
		devices := make([]nftkernel.Device, len(links))
		for i, l := range links {
			devices[i] = nftkernel.Device(l)
		}
		err := table.Follow(devices)
		o.note(table.Devices(), err)
		if err != nil && table.Devices() == 0 {
			stop(err) // another table may help
		}
	})
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return errors.Join(err, table.Close())
}

// note keeps the state, and logs what changes.
func (o *Offload) note(devices int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	former, now := o.state, state.Offload{Devices: devices}
	if err != nil {
		if now.Problem, now.Since = err.Error(), former.Since; now.Since.IsZero() {
			now.Since = time.Now()
		}
	}
	o.state = now
	switch {
	case now.Problem != "" && now.Problem != former.Problem:
		o.Log.Warn("cannot offload TCP connections to Services", zap.Error(err))
	case now.Problem == "" && (former.Problem != "" || former.Devices == 0):
		o.Log.Info("offloading TCP connections to Services", zap.Int("devices", devices))
	}
}
