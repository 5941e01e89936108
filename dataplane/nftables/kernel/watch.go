// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/host/holder"
	"github.com/sluice-proxy/sluice/internal/netlink"
)

// Starts is the state that the writers of one process share. As long as any process listens to
// announcements, in any network namespace (netlink_has_listeners), the kernel describes each element of
// each transaction, which is a third of the cost of a node's first write. No writer therefore listens
// before all have written for the first time. Until then, the number of transactions shows whether
// other programs changed tables.
type Starts struct {
	// begun and ended count the transactions of all writers, landed those that landed. A
	// transaction with an unknown outcome never ends.
	begun, ended, landed atomic.Uint32

	mu      sync.Mutex
	writers int // the number of writers that have not written yet
	all     chan struct{}
}

// NewStarts returns a Starts for the writers of one process.
func NewStarts() *Starts { return &Starts{all: make(chan struct{})} }

// start is one writer's part of Starts. ended is closed at the end of the first Write.
type start struct {
	of    *Starts
	once  sync.Once
	ended chan struct{}
}

func (s *Starts) add() *start {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writers++
	return &start{of: s, ended: make(chan struct{})}
}

// end notes that the writer has written.
func (s *start) end() {
	s.once.Do(func() {
		close(s.ended)
		s.of.mu.Lock()
		defer s.of.mu.Unlock()
		if s.of.writers--; s.of.writers == 0 {
			close(s.of.all)
		}
	})
}

// othersMax limits how long a writer waits for the others after its first write.
const othersMax = 10 * time.Second

// await waits until all writers have written.
func (s *start) await(ctx context.Context) {
	select {
	case <-s.ended:
	case <-ctx.Done():
		return
	}
	select {
	case <-s.of.all:
	case <-time.After(othersMax):
	case <-ctx.Done():
	}
}

// commit commits and counts a transaction.
func (s *Starts) commit(socket Socket, t *wire.Transaction) ([]*wire.Rejection, error) {
	if t.Messages() == 0 {
		return socket.Commit(t)
	}
	s.begun.Add(1)
	rejections, err := socket.Commit(t)
	_, notSent := errors.AsType[*netlink.NotSentError](err)
	switch {
	case err == nil && len(rejections) == 0:
		s.landed.Add(1)
	case err != nil && !notSent:
		return rejections, err
	}
	s.ended.Add(1)
	return rejections, err
}

// others returns the number of transactions of other processes, relative to an arbitrary number. It
// fails if a transaction of this process is in progress at each of its looks.
func (s *Starts) others(ctx context.Context, r *reader) (uint32, error) {
	const looks, pause = 20, 5 * time.Millisecond
	for range looks {
		begun := s.begun.Load()
		if s.ended.Load() == begun {
			landed := s.landed.Load()
			generation, err := r.generation(ctx)
			if err != nil || s.begun.Load() == begun {
				return generation - landed, err
			}
		}
		time.Sleep(pause)
	}
	return 0, errors.New("transactions all the time")
}

// awaitStart returns immediately if the table exists. Otherwise it waits for the first writes, and
// returns the number of other processes' transactions before them.
func (w *Writer) awaitStart(ctx context.Context) (before uint32, cold bool) {
	before, err := w.others(ctx)
	if err != nil {
		return 0, false
	}
	err = w.aside(func(r *reader) error {
		table, err := r.table(ctx)
		cold = err == nil && table == nil
		return err
	})
	if err != nil || !cold {
		return 0, false
	}
	w.start.await(ctx)
	return before, true
}

// others calls Starts.others.
func (w *Writer) others(ctx context.Context) (others uint32, err error) {
	err = w.aside(func(r *reader) (err error) {
		others, err = w.config.Starts.others(ctx, r)
		return err
	})
	return others, err
}

// aside queries the kernel over a separate socket: Write and Read may be using the other one.
func (w *Writer) aside(ask func(*reader) error) error {
	return w.config.Inside.Do(func() error {
		socket, err := w.config.Open()
		if err != nil {
			return fmt.Errorf("open a second socket: %w", err)
		}
		return errors.Join(ask(&reader{d: w.d, socket: socket}), socket.Close())
	})
}

// Watch calls changed when another process changed Sluice's table, with the process that the
// kernel names, and when the kernel lost announcements. It returns the context's error when the
// context ends. Updates of the maps of clients by packets are not announced as changes.
//
// The kernel names the process at the end of a transaction, so Watch calls changed once for each
// transaction, regardless of its size.
//
// If there is no table, it begins to listen once the first Write has ended; see Starts.
func (w *Writer) Watch(ctx context.Context, changed func(by dataplane.ForeignProcess)) error {
	socket, err := w.open()
	if err != nil {
		return err
	}
	before, cold := w.awaitStart(ctx)
	var listener *netlink.TableListener
	err = w.config.Inside.Do(func() error {
		var err error
		listener, err = netlink.ListenTables(w.d.Protocol, socket.Port())
		return err
	})
	if err != nil {
		return err
	}
	if cold {
		// Changes before the listener started were not announced to it.
		if now, err := w.others(ctx); err != nil || now != before {
			changed(dataplane.ForeignProcess{})
		}
	}
	touched := false
	each := func(m netlink.Netfilter) {
		if pid, command, ends := netlink.Generation(m); !ends {
			ours := concerns(w.d, m)
			if touched = touched || ours; ours && uncounts(m) {
				w.config.Tally.lost()
			}
		} else if touched {
			touched = false
			changed(dataplane.ForeignProcess{PID: pid, Command: command, Origin: holder.Origin(pid, command)})
		}
	}
	err = listener.Run(ctx, each, func() {
		w.config.Tally.lost()
		changed(dataplane.ForeignProcess{})
	})
	return errors.Join(err, listener.Close())
}
