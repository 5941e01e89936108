// SPDX-License-Identifier: Apache-2.0

package logging

import (
	"bytes"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// waitingMax bounds the bytes of the lines that wait for a stream.
	waitingMax = 4 << 20
	// flushMax is how long the end of the process waits for a stream.
	flushMax = time.Second
)

// stream writes lines to a file without blocking the caller: the reader of a pipe may stop reading, and actors and
// aggregators log while they work. It drops and counts the lines beyond its limit. It implements zapcore.WriteSyncer.
type stream struct {
	file    *os.File
	dropped atomic.Uint64

	mu      sync.Mutex
	waiting [][]byte
	// size is the number of bytes that wait.
	size int
	// idle is closed when no line waits any more; nil while none does.
	idle chan struct{}
}

// Write queues a line, or drops it.
func (s *stream) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size+len(line) > waitingMax {
		s.dropped.Add(1)
	} else {
		s.add(line)
	}
	return len(line), nil
}

// last queues the line with which the process ends, even beyond the limit.
func (s *stream) last(line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(line)
}

// add queues a line. The lock is held.
func (s *stream) add(line []byte) {
	s.waiting = append(s.waiting, bytes.Clone(line)) // zap reuses the memory
	s.size += len(line)
	if s.idle == nil {
		s.idle = make(chan struct{})
		go s.drain()
	}
}

// drain writes all lines that wait. A line is one write, so that it stays whole among those of
// other processes.
func (s *stream) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.waiting) > 0 {
		batch := s.waiting
		s.waiting = nil
		for i, line := range batch {
			batch[i] = nil // it does not count any more
			s.mu.Unlock()
			_, _ = s.file.Write(line) // there is nowhere to report an error
			s.mu.Lock()
			s.size -= len(line)
		}
	}
	close(s.idle)
	s.idle = nil
}

// Sync waits until no line waits, but not for long. It does not flush to a disk, which would cost time
// and gain nothing.
func (s *stream) Sync() error {
	s.mu.Lock()
	idle := s.idle
	s.mu.Unlock()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
	case <-time.After(flushMax):
	}
	return nil
}

// streams are where a log may go.
type streams struct {
	standard, errors *stream
}

var standardStreams = streams{&stream{file: os.Stdout}, &stream{file: os.Stderr}}

// Dropped counts the lines that were not written.
func Dropped() uint64 {
	return standardStreams.errors.dropped.Load() + standardStreams.standard.dropped.Load()
}

// Flush waits until the log is written, but at most a second per stream. Call it before the process
// ends.
func Flush() {
	_ = standardStreams.errors.Sync()
	_ = standardStreams.standard.Sync()
}
