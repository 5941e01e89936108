package localport

import (
	"io"
	"net"
	"sync/atomic"
)

// connection is a TCP connection and its continuation to the target.
type connection struct {
	client, upstream *net.TCPConn
}

// pump copies in both directions until both have ended, one of them has failed,
// or the crew ends. It blocks.
func (c *connection) pump(h *household, name string) {
	defer c.close()
	release := atEnd(h.crew.ctx, c.abort)
	defer release()
	other := make(chan struct{})
	questions := func() error { c.half(c.upstream, c.client, &h.counters.toTargets); return nil }
	if !h.crew.run(name, questions, func(error) { close(other) }) {
		c.abort()
		return
	}
	defer func() { <-other }()
	c.half(c.client, c.upstream, &h.counters.toClients)
}

// half copies one direction and passes its end on: the other direction may have
// more to say. When it fails, or panics, both end.
func (c *connection) half(to, from *net.TCPConn, copied *atomic.Uint64) {
	whole := false
	defer func() {
		if !whole {
			c.abort()
		}
	}()
	n, err := io.Copy(to, from) // by splice(2), without copies in this process
	copied.Add(uint64(n))
	whole = err == nil && to.CloseWrite() == nil
}

// abort resets both ends, so that neither takes half an answer for a whole one.
func (c *connection) abort() {
	reset(c.client)
	reset(c.upstream)
}

// close ends what has ended in both directions.
func (c *connection) close() {
	_ = c.client.Close() // everything was passed on, or abort was there first
	_ = c.upstream.Close()
}
