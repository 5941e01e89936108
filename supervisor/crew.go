package supervisor

import "sync"

// crew counts the goroutines of children that work and are not abandoned.
type crew struct {
	mu      sync.Mutex
	count   int
	closed  bool
	running sync.WaitGroup
}

// crowd is the number of goroutines from which whoever starts one more lets them run
// first. When all children are woken at once, few of them have a stack at a time.
const crowd = 64

// join adds a goroutine. It reports false after dismiss.
func (c *crew) join() (crowded, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false, false
	}
	c.count++
	c.running.Add(1)
	return c.count > crowd, true
}

func (c *crew) leave() {
	c.mu.Lock()
	c.count--
	c.mu.Unlock()
	c.running.Done()
}

// dismiss lets no goroutine join any more, and waits until all have left.
func (c *crew) dismiss() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.running.Wait()
}
