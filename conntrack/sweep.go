package conntrack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

const (
	// filtersMax is the number of pending frontends up to which each is asked
	// for by itself. Each question makes the kernel walk over its whole table,
	// which costs about a sixth of what showing every flow in it does (60 and
	// 380 ms at 200,000 flows, Linux 6.18).
	filtersMax = 4
	// removeBatch is the number of flows that are deleted in one request.
	removeBatch = 128
	// listings bounds the times that an interrupted listing is begun.
	listings = 6
)

// sweep cleans the pending frontends of a table once. It holds removeBatch flows
// at most, however many there are.
type sweep struct {
	table  *table
	kernel kernel
	onNode func(netip.Addr) bool
	// doomed are stale flows, and blame whose change has made each so.
	doomed [][]byte
	blame  []service.Key
	// space is what doomed points into.
	space []byte
	// refusal is why the kernel would not delete a flow, the last of refused.
	refusal error
	refused int

	result Swept
}

// newSweep prepares a sweep. Node ports answer where answering says.
func newSweep(t *table, k kernel, family service.Family, answering service.NodePortAddresses) (*sweep, error) {
	s := &sweep{table: t, kernel: k, result: Swept{Family: family, Frontends: len(t.pending)}}
	on := map[netip.Addr]bool{}
	addresses := answering.Addresses
	if answering.All {
		var err error
		if addresses, err = k.addresses(); err != nil {
			return nil, err
		}
	}
	for _, a := range addresses {
		on[a] = true
	}
	s.onNode = func(a netip.Addr) bool { return on[a] || answering.All && a.IsLoopback() }
	return s, nil
}

// run sweeps. What has been cleaned is no longer pending, even if the rest fails.
func (s *sweep) run(ctx context.Context) error {
	for _, only := range s.questions() {
		honoured, err := s.list(ctx, only)
		if err != nil {
			return err
		}
		if s.refusal != nil {
			return fmt.Errorf("%d stale flows could not be deleted: %w", s.refused, s.refusal)
		}
		if !honoured { // the answer held every flow
			clear(s.table.pending)
			return nil
		}
		maps.DeleteFunc(s.table.pending, func(f frontend, _ service.Key) bool { return only.matches(f) })
	}
	return nil
}

// questions gives what is to be asked so that the answers hold all flows of the
// pending frontends.
func (s *sweep) questions() []filter {
	var all []filter
	for f := range s.table.pending {
		if only := filterFor(f); !slices.Contains(all, only) {
			all = append(all, only)
		}
		if len(all) > filtersMax {
			return []filter{{}}
		}
	}
	return all
}

// list puts one question, again while the answer is interrupted, and tells whether
// the filter was honoured. What is deleted once is not seen again.
func (s *sweep) list(ctx context.Context, only filter) (honoured bool, err error) {
	for range listings {
		honoured, err = s.kernel.flows(ctx, only, s.look)
		if err == nil {
			return honoured, s.flush()
		}
		if !errors.Is(err, errInterrupted) {
			return false, err
		}
	}
	return false, fmt.Errorf("%d times: %w", listings, err)
}

// look judges one flow.
func (s *sweep) look(f *flow) error {
	s.result.Flows++
	by, stale := s.table.judge(f, s.onNode)
	if !stale {
		return nil
	}
	at := len(s.space)
	s.space = append(s.space, f.identity...)
	s.doomed = append(s.doomed, s.space[at:])
	s.blame = append(s.blame, by)
	if len(s.doomed) < removeBatch {
		return nil
	}
	return s.flush()
}

// flush deletes what is doomed.
func (s *sweep) flush() error {
	if len(s.doomed) == 0 {
		return nil
	}
	outcomes, err := s.kernel.remove(s.doomed)
	for i, outcome := range outcomes {
		switch {
		case outcome == nil:
			s.count(s.blame[i])
		case !errors.Is(outcome, errGone):
			s.refused, s.refusal = s.refused+1, outcome
		}
	}
	s.doomed, s.blame, s.space = s.doomed[:0], s.blame[:0], s.space[:0]
	return err
}

func (s *sweep) count(by service.Key) {
	if s.result.Services == nil {
		s.result.Services = map[service.Key]int{}
	}
	s.result.Services[by]++
	s.result.Deleted++
}
