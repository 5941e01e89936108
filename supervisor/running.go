// SPDX-License-Identifier: Apache-2.0

package supervisor

import "sync"

// runningSet counts the goroutines of children that work and are not abandoned.
type runningSet struct {
	mu     sync.Mutex
	count  int
	closed bool
	// empty is closed once no goroutine can join any more and all have left.
	empty chan struct{}
}

func newRunningSet() *runningSet { return &runningSet{empty: make(chan struct{})} }

// crowd is the number of goroutines above which the goroutine that starts one more yields to them. So when all children
// are woken together, few of them have a stack at a time.
const crowd = 64

// join adds a goroutine. It reports false after dismiss.
func (c *runningSet) join() (crowded, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false, false
	}
	c.count++
	return c.count > crowd, true
}

func (c *runningSet) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count--
	if c.closed && c.count == 0 {
		close(c.empty)
	}
}

// dismiss lets no goroutine join any more. The channel is closed once all have left. It
// must be called once.
func (c *runningSet) dismiss() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.count == 0 {
		close(c.empty)
	}
	return c.empty
}
