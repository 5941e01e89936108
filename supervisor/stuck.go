// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// patrol abandons the children that are past their message deadline.
func (s *Supervisor[K]) patrol() {
	late := s.watch.overdue(s.limits.messageDeadline)
	if len(late) == 0 {
		return
	}
	for key, c := range s.children {
		spent, stuck := late[c.lease]
		if c.lease == nil || !stuck {
			continue
		}
		lease := c.lease
		stack, given := s.abandon(key, c)
		if !given {
			continue // it has returned, and its report is on the way
		}
		err := fmt.Errorf("stuck with one message for %v", spent.Round(time.Millisecond))
		pause, points := s.fail(key, c, err)
		s.tell(key, lease.incarnation, Stuck{For: spent,
			Stack: stack, Score: points, Backoff: pause, Abandoned: len(s.abandoned)})
	}
}

// givenUp is the child whose incarnation was given up. A later child of the same key is another one.
type givenUp[K comparable] struct {
	key   K
	child *child
}

// abandon gives up the incarnation of a child and returns its stack. It reports false if
// no goroutine works for it.
func (s *Supervisor[K]) abandon(key K, c *child) (stack string, given bool) {
	cancel, called := c.lease.abandon()
	if cancel == nil {
		return "", false
	}
	stack = stackOf(c.lease.incarnation)
	cancel()
	s.abandoned[c.lease.incarnation] = givenUp[K]{key, c}
	c.hung++
	c.nudged = c.nudged || called
	c.lease = nil
	s.running.leave()
	return stack, true
}

// crowded returns an error if too many incarnations were abandoned. Each keeps its memory, and one that loops keeps a
// CPU busy. The next process starts without them.
func (s *Supervisor[K]) crowded() error {
	if len(s.abandoned) <= s.limits.abandonedMax {
		return nil
	}
	times := map[K]int{}
	for _, g := range s.abandoned {
		times[g.key]++
	}
	var names []string
	for key, n := range times {
		names = append(names, fmt.Sprintf("%v (%d)", key, n))
	}
	slices.Sort(names)
	return fmt.Errorf("%d goroutines hang, and no more than %d may: %s",
		len(s.abandoned), s.limits.abandonedMax, strings.Join(names[:min(len(names), namedMax)], ", "))
}

// namedMax bounds the names in an error, and the stacks that are captured while stopping.
const namedMax = 10

// dismiss waits until all children have stopped, for stopWait at most. It fences and
// reports the others.
func (s *Supervisor[K]) dismiss() {
	limit := time.NewTimer(s.limits.stopWait)
	defer limit.Stop()
	select {
	case <-s.running.dismiss():
		return
	case <-limit.C:
	}
	stacks := 0
	for key, c := range s.children {
		if c.lease == nil {
			continue
		}
		cancel, _ := c.lease.abandon()
		if cancel == nil {
			continue // it rests, or has just returned
		}
		cancel()
		stack := ""
		if stacks++; stacks <= namedMax {
			stack = stackOf(c.lease.incarnation)
		}
		s.tell(key, c.lease.incarnation, Unstopped{After: s.limits.stopWait, Stack: stack})
	}
}
