package demo

import (
	"context"
	"sync"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/service"
)

// chaos makes one actor misbehave once, at its next message.
type chaos struct {
	release chan struct{}

	mu   sync.Mutex
	key  service.Key
	mode mode
}

type mode uint8

const (
	behave mode = iota
	panics
	hangs
)

func newChaos() *chaos { return &chaos{release: make(chan struct{})} }

// arm chooses the victim and what it will do.
func (c *chaos) arm(key service.Key, m mode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.key, c.mode = key, m
}

// end lets a hanging actor go.
func (c *chaos) end() { close(c.release) }

// intercept is called by every actor before each message. A hanging actor
// ignores its context, as one that is stuck in a system call would.
func (c *chaos) intercept(_ context.Context, key service.Key, _ actors.Message) {
	switch c.next(key) {
	case panics:
		panic("the demo made this actor panic")
	case hangs:
		<-c.release
	}
}

// next gives what the actor has to do, and disarms.
func (c *chaos) next(key service.Key) mode {
	c.mu.Lock()
	defer c.mu.Unlock()
	if key != c.key || c.mode == behave {
		return behave
	}
	m := c.mode
	c.mode = behave
	return m
}
