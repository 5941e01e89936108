package userspace

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// linesMax bounds the lines of an access log in a second, and waitingMax those that wait.
	linesMax   = 1000
	waitingMax = 4096
)

// AccessLog passes connections that have ended to a function that may block. It holds no connection
// up: what is too much is omitted and counted. It has a goroutine from the first connection on.
type AccessLog struct {
	write   func(Ended)
	omitted func(connections uint64)
	queue   chan Ended
	lost    atomic.Uint64
	begin   sync.Once
	running sync.WaitGroup
	stop    chan struct{}
}

// Ended is a connection or session that has ended.
type Ended struct {
	*Open
	Took time.Duration
}

// NewAccessLog returns an access log. It calls write for each connection, and omitted once a minute
// with the number of those left out, if any.
func NewAccessLog(write func(Ended), omitted func(connections uint64)) *AccessLog {
	return &AccessLog{write: write, omitted: omitted, queue: make(chan Ended, waitingMax), stop: make(chan struct{})}
}

// Close writes what still waits. Nothing ends any more.
func (l *AccessLog) Close() {
	close(l.stop)
	l.running.Wait()
}

func (l *AccessLog) put(o *Open) {
	if l == nil {
		return
	}
	l.begin.Do(func() { l.running.Go(l.run) })
	select {
	case l.queue <- Ended{o, time.Since(o.Began)}:
	default:
		l.lost.Add(1)
	}
}

func (l *AccessLog) run() {
	second, minute := time.NewTicker(time.Second), time.NewTicker(time.Minute)
	defer second.Stop()
	defer minute.Stop()
	left := linesMax
	for {
		select {
		case e := <-l.queue:
			left = l.pass(e, left)
		case <-second.C:
			left = linesMax
		case <-minute.C:
			l.tell()
		case <-l.stop:
			for len(l.queue) > 0 {
				left = l.pass(<-l.queue, left)
			}
			l.tell()
			return
		}
	}
}

// pass writes a line if any are left for this second, and returns how many are left then.
func (l *AccessLog) pass(e Ended, left int) int {
	if left == 0 {
		l.lost.Add(1)
		return 0
	}
	l.write(e)
	return left - 1
}

func (l *AccessLog) tell() {
	if n := l.lost.Swap(0); n > 0 {
		l.omitted(n)
	}
}
