package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/daemon/rival"
	"github.com/sluice-proxy/sluice/observe/health"
)

// holderAgain is the pause before it is found out anew who has an address, and said.
const holderAgain = time.Minute

// addresses knows which addresses of this process others have.
type addresses struct {
	mu    sync.Mutex
	taken map[string]health.Finding // by the field of the configuration
}

// listening takes note of how it stands with an address, for a server there: it says
// who has it. The field of the configuration is its name.
func (s *server) listening(field, address string) func(error) {
	var saidAt time.Time
	handing := false
	return func(err error) {
		switch now := time.Now(); {
		case err == nil:
			if s.taken.free(field) {
				s.log.Info("an address that another program had is this one's now", zap.String(field, address))
			}
			saidAt, handing = time.Time{}, false
		case !errors.Is(err, syscall.EADDRINUSE):
		case s.owner.handing():
			if !handing {
				handing = true
				s.log.Info("the other proxy still has an address; it is taken over as soon as that gives it up", zap.String(field, address))
			}
		case now.Sub(saidAt) >= holderAgain:
			saidAt = now
			problem := fmt.Sprintf("%s %s is held by %s", field, address, holderOf(address))
			if s.taken.set(field, health.Finding{Kind: health.AddressTaken, About: field, Since: now, Problem: problem}) {
				s.log.Warn("another program has an address of this one; tried again", zap.String("problem", problem))
				s.recorder.AddressTaken(problem)
			}
		}
	}
}

// holderOf says who has an address.
func holderOf(address string) string {
	if at, err := netip.ParseAddrPort(address); err == nil {
		if holder, found := rival.HolderOf(at); found {
			return holder.String()
		}
	}
	return "a process that cannot be found"
}

// free forgets a finding, and tells whether there was one.
func (a *addresses) free(field string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known := a.taken[field]
	delete(a.taken, field)
	return known
}

// set takes note of a finding, and tells whether it is a new one.
func (a *addresses) set(field string, f health.Finding) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	former, known := a.taken[field]
	if known && former.Problem == f.Problem {
		return false
	}
	if a.taken == nil {
		a.taken = map[string]health.Finding{}
	}
	a.taken[field] = f
	return true
}

// findings lists the addresses that others have.
func (a *addresses) findings() (all []health.Finding) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.taken {
		all = append(all, f)
	}
	slices.SortFunc(all, func(x, y health.Finding) int { return x.Since.Compare(y.Since) })
	return all
}
