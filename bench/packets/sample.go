// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// The directions.
const (
	forwarded = "forwarded" // the client is behind the node
	local     = "local"     // the client is on the node
)

// sampling says how a sample is taken.
type sampling struct {
	duration  time.Duration
	processor int
	realtime  bool
	// evict is memory that is touched before each turn, so that the processor's caches hold little of
	// what the turn needs. A node has other work between packets, and rules that only this program
	// uses would stay in the fastest cache.
	evict []byte
}

const cacheLine = 64

// take measures how long one exchange of a case takes in a room, in microseconds: the first quartile
// of the turns. Other work on the machine can only make a turn longer.
func (s sampling) take(r *room, direction string, f service.Family, b benchCase, targets []target) (float64, error) {
	// Connections of earlier samples would make the look-ups of later ones slower.
	if err := netnstest.FlushConntrack(r.node); err != nil {
		return 0, err
	}
	client, others := r.client, otherClients[f]
	if direction == local {
		client, others = r.node, otherNodes[f]
	}
	targets = slices.Clone(targets)
	for i, t := range targets {
		if t.client > 0 {
			targets[i].raw = newAddress(t.at)
			targets[i].raw.from = newAddress(netip.AddrPortFrom(others[t.client-1], 0))
		}
	}
	var took float64
	err := client.Do(func() error {
		undo, err := s.secure()
		if err != nil {
			return err
		}
		defer undo()
		took, err = s.measure(&scene{server: r.servers[f], targets: targets, body: make([]byte, payload)}, b)
		return err
	})
	return took, err
}

func (s sampling) measure(on *scene, b benchCase) (float64, error) {
	if err := on.server.drain(); err != nil {
		return 0, err
	}
	if err := on.check(); err != nil {
		return 0, err
	}
	t, err := b.begin(on)
	if t != nil {
		defer t.end()
	}
	if err != nil {
		return 0, err
	}
	if _, err := t.turn(); err != nil { // not measured: caches, connection tracking, neighbours
		return 0, err
	}
	runtime.GC() // none during the sample
	turns := make([]float64, 0, 4096)
	for began := time.Now(); time.Since(began) < s.duration || len(turns) < 3; {
		for i := 0; i < len(s.evict); i += cacheLine {
			s.evict[i]++
		}
		start := time.Now()
		count, err := t.turn()
		took := time.Since(start)
		if err != nil {
			return 0, err
		}
		turns = append(turns, float64(took.Nanoseconds())/1e3/float64(count))
	}
	return rig.Quantile(turns, 0.25), nil
}

// secure binds the calling thread to the processor and keeps signals away from it, and returns what
// undoes both. The runtime sends signals to threads that compute for long, and one of them would make
// the kernel break off a connect that has just succeeded. With realtime, nothing else but interrupts
// runs on the processor during the sample.
func (s sampling) secure() (undo func(), err error) {
	var processors, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &processors); err != nil {
		return nil, err
	}
	priority, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return nil, err
	}
	var all, signals unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &all, &signals); err != nil {
		return nil, err
	}
	undo = func() {
		_ = unix.PthreadSigmask(unix.SIG_SETMASK, &signals, nil)
		_ = unix.SchedSetAttr(0, priority, 0)
		_ = unix.SchedSetaffinity(0, &processors)
	}
	one.Set(s.processor)
	if err = unix.SchedSetaffinity(0, &one); err == nil && s.realtime {
		err = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
	}
	if err != nil {
		undo()
		return nil, fmt.Errorf("have processor %d: %w", s.processor, err)
	}
	return undo, nil
}

// lastProcessor returns the highest number among the processors that this process may use.
func lastProcessor() int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return 0
	}
	last := 0
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			last = i
		}
	}
	return last
}
