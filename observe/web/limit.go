package web

import (
	"net"
	"sync"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"
)

// connectionsMax returns how many connections a server accepts at a time; further ones wait in the
// kernel. Two servers and the listeners of one Limit take three eighths of the descriptors at most,
// so that clients cannot keep the process from running programs and opening sockets, which changes
// of rules may need.
func connectionsMax() int {
	const least, most = 16, 2000
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return least
	}
	return int(min(max(limit.Cur/8, least), most))
}

// Limit bounds the connections of many listeners: together as many as one Server has, and each a
// part of them, so that the clients of one listener leave room for the others. Further connections
// wait.
type Limit struct {
	slots chan struct{}
	each  int
}

// NewLimit makes a limit. It reads the process's limit of descriptors.
func NewLimit() *Limit { return newLimit(connectionsMax()) }

func newLimit(all int) *Limit {
	const share, least = 16, 16
	return &Limit{slots: make(chan struct{}, all), each: max(all/share, least)}
}

// Bound returns a listener whose connections are limited.
func (l *Limit) Bound(listener net.Listener) net.Listener {
	return netutil.LimitListener(&bounded{Listener: listener, slots: l.slots, closed: make(chan struct{})}, l.each)
}

// bounded is a listener that shares the slots of a Limit.
type bounded struct {
	net.Listener
	slots  chan struct{}
	closed chan struct{}
	once   sync.Once
}

// Accept takes a slot for a connection that is there: an idle listener has none.
func (b *bounded) Accept() (net.Conn, error) {
	conn, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	select {
	case b.slots <- struct{}{}:
		return &slotted{Conn: conn, slots: b.slots}, nil
	case <-b.closed:
		_ = conn.Close() // nobody has it yet
		return nil, net.ErrClosed
	}
}

// Close also ends an Accept that waits for a slot.
func (b *bounded) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

// slotted is a connection that has a slot.
type slotted struct {
	net.Conn
	slots chan struct{}
	once  sync.Once
}

// Close releases the slot.
func (s *slotted) Close() error {
	err := s.Conn.Close()
	s.once.Do(func() { <-s.slots })
	return err
}
