// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/daemon/peer"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/observe/state"
)

// handingOver is how long after the lock was acquired the previous proxy may still be
// closing its sockets: it stops its HTTP servers last.
const handingOver = 10 * time.Second

// owner is this process's claim to the rules of its network namespace. It outlives servers: a reload inside the process
// keeps the lock.
//
// Invariant: one process in a network namespace reads and writes rules. Others prepare
// everything else, and wait (docs/adr/0016-single-writer-lock.md).
type owner struct {
	lock *peer.Lock
	log  *zap.Logger
	// mayWrite is closed once the rules belong to this process.
	mayWrite chan struct{}

	mu sync.Mutex
	// standby is what health reports about waiting.
	standby health.Standby
	// began is when this process found the lock taken; zero if it did not.
	began time.Time
	// arrived is set once the first rules are applied.
	arrived bool
	// without is why this process serves without the lock; empty if it does not.
	without string
}

// claim takes the lock if it is free. Otherwise wait has to acquire it.
func claim(log *zap.Logger) *owner {
	o := &owner{lock: peer.NewLock(), log: log, mayWrite: make(chan struct{})}
	switch holder, err := o.lock.Try(); {
	case err != nil:
		o.serveWithout(err.Error())
	case holder == nil:
		close(o.mayWrite)
	default:
		o.began = time.Now()
		o.meet(*holder)
	}
	return o
}

// owns reports whether the rules belong to this process.
func (o *owner) owns() bool {
	select {
	case <-o.mayWrite:
		return true
	default:
		return false
	}
}

// wait waits until the rules belong to this process, or the context ends. It calls before right before
// this process may write.
func (o *owner) wait(ctx context.Context, before func()) {
	if o.began.IsZero() {
		return
	}
	err := o.lock.Acquire(ctx, func(holder peer.Holder) {
		if o.meet(holder) {
			o.log.Info("standby: another proxy owns the rules on this node",
				zap.Int("pid", holder.PID), zap.String("command", holder.Command),
				zap.Duration("waited", time.Since(o.began).Round(time.Millisecond)))
		}
	})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		o.serveWithout(err.Error())
	case !o.owns():
		waited := time.Since(o.began)
		before()
		o.mu.Lock()
		o.standby = health.Standby{Since: time.Now()}
		o.mu.Unlock()
		close(o.mayWrite)
		o.log.Info("other proxy exited; taking over", zap.Duration("waited", waited.Round(time.Millisecond)))
	default:
		o.locked()
	}
}

// meet notes who holds the lock, and reports whether this process waits for it.
func (o *owner) meet(holder peer.Holder) bool {
	if holder.ForeignProcess {
		o.serveWithout("it is held by " + holder.String() + ", which cannot be a proxy")
		return false
	}
	if o.owns() {
		return false // it serves without the lock, which passed from a foreign process to a proxy
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.standby = health.Standby{For: holder.String(), Since: o.began}
	return true
}

// serveWithout serves without the lock: neither an unprivileged process nor a problem with
// a socket may keep a node from being served.
func (o *owner) serveWithout(why string) {
	if o.owns() {
		return
	}
	o.mu.Lock()
	o.standby, o.without = health.Standby{Since: time.Now()}, why
	o.mu.Unlock()
	o.log.Warn("running without the proxy lock; a second proxy would not be detected", zap.String("lock", peer.LockName), zap.String("reason", why))
	close(o.mayWrite)
}

// locked notes that a process that served without the lock holds it now.
func (o *owner) locked() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.without != "" {
		o.began, o.without = time.Time{}, ""
		o.log.Info("acquired the proxy lock", zap.String("lock", peer.LockName))
	}
}

// handing reports whether another proxy has, or may still have, the addresses on which
// this one listens.
func (o *owner) handing() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.began.IsZero() || o.without != "" {
		return false
	}
	return o.standby.For != "" || time.Since(o.standby.Since) < handingOver
}

// waiting returns what health reports about waiting.
func (o *owner) waiting() health.Standby {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.standby
}

// applied logs, after a wait, how long it took until the first rules were applied.
func (o *owner) applied() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.began.IsZero() && !o.arrived && o.without == "" {
		o.log.Info("takeover complete: all rules applied", zap.Duration("duration", time.Since(o.standby.Since)))
	}
	o.arrived = true
}

// findings returns what is wrong with the lock.
func (o *owner) findings() []state.Finding {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.without == "" {
		return nil
	}
	return []state.Finding{{Kind: health.NoLock, Since: o.standby.Since,
		Problem: "a second proxy would not be noticed: cannot take the lock " + peer.LockName + ": " + o.without}}
}
