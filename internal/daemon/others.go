// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/sleep"
)

// othersRetry is the pause between two attempts to remove the rules of other modes.
const othersRetry = time.Minute

// others records whether rules of another proxy or mode may still send connections of this node. It outlives servers.
type others struct {
	mu sync.Mutex
	// kind is that of the server for which err holds.
	kind string
	err  error
}

var (
	errOthersRemain = errors.New("rules of another proxy or mode may still send connections; Sluice removes them after the first sync")
	errOthersStay   = errors.New("rules of another proxy or mode may still send connections; Sluice cannot remove them, see its log")
)

// begin is called before a server serves. A server that follows one of the same kind inherits its result.
func (o *others) begin(kind string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.kind != kind {
		o.kind, o.err = kind, errOthersRemain
	}
}

// ended notes the end of an attempt to remove the rules.
func (o *others) ended(err error) {
	if err != nil {
		err = errOthersStay // without the cause: all clients of the health address can read it
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

// remain returns why other rules may still send connections; nil if they cannot.
func (o *others) remain() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// kind is equal for servers whose rules replace each other.
func (s *server) kind() string { return string(s.backend.Mode.Name) + " " + string(s.backend.Variant) }

// cleanUpOthers removes what other backends left, once the rules of this one are applied. It removes nothing if the Node
// has an InternalIP of a family that this backend does not serve, and returns an error.
func (s *server) cleanUpOthers(ctx context.Context) error {
	if err := s.backend.Unserved(s.proxy.Node()); err != nil && !s.options.Sandboxed {
		return err
	}
	s.life.owner.applied()
	s.inStep()
	if s.options.FirstSync != nil {
		s.options.FirstSync(s.backend.Mode.Name)
	}
	s.handover.settle(ctx)
	s.life.sockets.Close()
	var said string
	for attempt := 0; ctx.Err() == nil; attempt++ {
		replaced, err := s.backend.CleanUpOthers(ctx, s.log)
		ended := s.cleanedUp(ctx, err, &said)
		if attempt == 0 {
			s.handover.leave(ctx)
		}
		if attempt == 0 || replaced {
			s.handover.release(ctx, replaced)
		}
		if ended {
			break
		}
		sleep.For(ctx, othersRetry)
	}
	return nil
}

// cleanedUp handles the end of an attempt, and reports whether another one would find nothing else. A failure is logged
// if it differs from the last logged one, which is in said.
func (s *server) cleanedUp(ctx context.Context, err error, said *string) (ended bool) {
	ended = err == nil || errors.Is(err, fs.ErrPermission)
	if err == nil || ctx.Err() == nil { // otherwise the next server does it
		s.life.others.ended(err)
	}
	switch {
	case err == nil:
		s.options.RestoreARP(s.backend.Mode, s.sysctls, s.log)
	case ctx.Err() != nil:
	case ended:
		s.log.Info("cannot determine whether rules of another mode remain", zap.Error(err))
	case err.Error() != *said:
		*said = err.Error()
		s.log.Warn("failed to remove rules of another mode; they still affect traffic", zap.Error(err))
	}
	return ended
}
