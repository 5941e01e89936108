// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/supervisor"
)

// script is an acceptor that returns these errors, then blocks until it is closed. For a nil error
// it panics.
type script struct {
	failures []error
	closed   chan struct{}
	closing  sync.Once
	// calls counts the calls of AcceptTCP.
	calls atomic.Int32
}

func (s *script) AcceptTCP() (*net.TCPConn, error) {
	s.calls.Add(1)
	if len(s.failures) == 0 {
		<-s.closed
		return nil, net.ErrClosed
	}
	failure := s.failures[0]
	s.failures = s.failures[1:]
	if failure == nil {
		panic("accept")
	}
	return nil, failure
}

func (s *script) SyscallConn() (syscall.RawConn, error) { return nil, net.ErrClosed }

func (s *script) Close() error {
	s.closing.Do(func() { close(s.closed) })
	return nil
}

// scripted is a listener over a scripted socket.
func scripted(h *Relay, failures ...error) *Listener {
	l := &Listener{relay: h, place: Place{service.TCP, netip.MustParseAddrPort("127.0.0.1:30080")}, stop: func() {}}
	socket := &script{failures: failures, closed: make(chan struct{})}
	l.server = &tcpServer{Relay: h, name: l.place.String(), socket: socket, choice: newChoice(Fixed{}, NewPool(Limits{Total: 1}))}
	l.alive.Store(true)
	return l
}

// TestListener_SurvivesTransientErrors: a listener survives transient accept errors, with pauses that double.
func TestListener_SurvivesTransientErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{Report: func(f Failure) { t.Errorf("reported %+v", f) }})
		l := scripted(h, unix.EMFILE, unix.ENFILE, unix.ECONNABORTED)
		l.Start(func() { t.Error("died") })
		for i, pause := range []time.Duration{pauseMin, 2 * pauseMin, 4 * pauseMin} {
			synctest.Wait()
			if calls := l.server.(*tcpServer).socket.(*script).calls.Load(); int(calls) != i+1 {
				t.Errorf("%d calls before pause %d, want %d", calls, i, i+1)
			}
			time.Sleep(pause)
		}
		if !l.Alive() || h.stats.Listeners.Load() != 1 {
			t.Error("the listener has ended")
		}
		l.Close()
		synctest.Wait()
		if l.Alive() || h.stats.Listeners.Load() != 0 {
			t.Error("the listener has not ended")
		}
		h.tasks.close()
	})
}

// TestListener_ReportsDeath: a listener that fails with a permanent error or a panic reports it, closes its socket and
// is not counted any more.
func TestListener_ReportsDeath(t *testing.T) {
	for name, failure := range map[string]error{"error": unix.EINVAL, "closed by somebody else": net.ErrClosed, "panic": nil} {
		t.Run(name, func(t *testing.T) {
			var reported Failure
			h := New(Config{Report: func(f Failure) { reported = f }})
			l := scripted(h, failure)
			died := make(chan struct{})
			l.Start(func() { close(died) })
			<-died
			if l.Alive() || h.stats.Listeners.Load() != 0 || h.stats.Failures.Load() != 1 {
				t.Error("the dead listener counts")
			}
			select {
			case <-l.server.(*tcpServer).socket.(*script).closed:
			default:
				t.Error("the dead listener holds its socket")
			}
			_, panicked := errors.AsType[*supervisor.PanicError](reported.Err)
			if reported.Listener != "tcp/127.0.0.1:30080" || panicked != (failure == nil) || failure != nil && !errors.Is(reported.Err, failure) {
				t.Errorf("reported %+v", reported)
			}
			h.tasks.close()
		})
	}
}

// TestBackoff_EndsWithContext: a backoff pause ends with its context.
func TestBackoff_EndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var ended atomic.Bool
		go func() {
			b := backoff{pause: pauseMax}
			goOn, failure := b.tolerate(ctx, unix.EMFILE)
			if goOn || failure != nil {
				t.Errorf("got %v, %v", goOn, failure)
			}
			ended.Store(true)
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if !ended.Load() {
			t.Error("the pause goes on")
		}
	})
}
