package userspace

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// linesMax bounds the lines of an access log in a second, and waitingMax those that wait.
	linesMax   = 1000
	waitingMax = 4096
)

// AccessLog passes connections that have ended to a function that may block. It holds no connection
// up: what is too much is omitted and counted.
type AccessLog struct {
	queue   chan Ended
	omitted atomic.Uint64
}

// Ended is a connection or session that has ended.
type Ended struct {
	*Open
	Took time.Duration
}

// NewAccessLog returns an access log. Somebody has to call Run.
func NewAccessLog() *AccessLog { return &AccessLog{queue: make(chan Ended, waitingMax)} }

func (l *AccessLog) put(o *Open) {
	if l == nil {
		return
	}
	select {
	case l.queue <- Ended{o, time.Since(o.Began)}:
	default:
		l.omitted.Add(1)
	}
}

// Run calls write for each connection, and every minute omitted with the number of those left out,
// if any. When the context ends it writes what still waits, and returns.
func (l *AccessLog) Run(ctx context.Context, write func(Ended), omitted func(uint64)) {
	second := time.NewTicker(time.Second)
	minute := time.NewTicker(time.Minute)
	defer second.Stop()
	defer minute.Stop()
	left := linesMax
	pass := func(e Ended) {
		if left--; left < 0 {
			l.omitted.Add(1)
			return
		}
		write(e)
	}
	tell := func() {
		if n := l.omitted.Swap(0); n > 0 {
			omitted(n)
		}
	}
	for {
		select {
		case e := <-l.queue:
			pass(e)
		case <-second.C:
			left = linesMax
		case <-minute.C:
			tell()
		case <-ctx.Done():
			for len(l.queue) > 0 {
				pass(<-l.queue)
			}
			tell()
			return
		}
	}
}
