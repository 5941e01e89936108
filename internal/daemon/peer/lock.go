// SPDX-License-Identifier: Apache-2.0

// Package peer makes sure that one Sluice at a time writes rules in a network namespace, passes the sockets of one to
// the next, and finds kube-proxies, which do not use the [Lock]. It changes nothing on the node.
package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/holder"
	"github.com/sluice-proxy/sluice/internal/sleep"
)

// LockName is the name of the lock: an abstract socket. Each network namespace has its own
// set of them, and one disappears with its process, however that ends (unix(7),
// network_namespaces(7)).
const LockName = "@sluice/owner"

// turnName is the name of the lock of [Turn].
const turnName = "@sluice/turn"

const (
	// answerPatience bounds the wait for the first message of the other process; a stopped
	// process (SIGSTOP) holds the lock and never answers. A busy node may take seconds.
	answerPatience = 5 * time.Second
	// answerMax bounds the length of an answer.
	answerMax = 4 << 10
	// asksMax bounds the proxies that may wait at a time.
	asksMax = 64
	// A failed try is repeated after a pause, which doubles from againMin to againMax.
	againMin, againMax = time.Millisecond, time.Second
	// toldAgain is the pause before the same holder is reported again.
	toldAgain = 30 * time.Second
)

// answer is what a holder sends on each connection. Fields may be added: readers ignore
// unknown ones.
type answer struct {
	Command string `json:"command"`
}

// Holder is the process that holds the lock.
type Holder struct {
	holder.Process
	// ForeignProcess means that it cannot be a proxy; see standingOf. Any process can bind the name, and one without
	// privilege must not keep a node from being served.
	ForeignProcess bool
}

// Lock is the right to write rules in one network namespace. One process holds it at a
// time, until Release or its end.
//
// Concurrency: one goroutine at a time may be in Try or Acquire; Waited and Release may
// be called from anywhere.
type Lock struct {
	name string
	// patience bounds the wait for the first message of the other process.
	patience time.Duration
	// offerPatience bounds the tries to connect to the offer of the previous holder.
	offerPatience time.Duration

	mu       sync.Mutex
	listener *net.UnixListener
	// asking are the connections of proxies that asked for the holder; most of them wait for its end. Foreign processes
	// get an answer, but are not in it.
	asking map[*net.UnixConn]struct{}

	entrance entrance // of those that ask

	// ahead is the connection to holder; nil without one. Both belong to the goroutine
	// in Try or Acquire.
	ahead  *net.UnixConn
	holder Holder
}

// NewLock returns the lock of this process's network namespace. Nothing happens before Try
// or Acquire.
func NewLock() *Lock { return newLock(LockName) }

// Turn waits until no other process has its turn in this network namespace, at most for the
// patience, and returns the function that ends the turn. It serializes short actions such as
// probing the kernel, which processes without the [Lock] do too.
func Turn(ctx context.Context, patience time.Duration) (end func()) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	turn := newLock(turnName)
	_ = turn.Acquire(ctx, func(holder Holder) {
		if holder.ForeignProcess {
			cancel() // do not wait for it
		}
	})
	turn.leave()
	return turn.Release
}

func newLock(name string) *Lock {
	return &Lock{name: name, patience: answerPatience, offerPatience: passPatience, asking: map[*net.UnixConn]struct{}{}}
}

// Try takes the lock and returns nil if it is free. Otherwise it returns the holder, which
// knows of this process from then on.
func (l *Lock) Try() (*Holder, error) {
	for pause := againMin; ; pause *= 2 {
		if free, err := l.bind(); free || err != nil {
			return nil, err
		}
		holder, err := l.ask()
		switch {
		case err == nil:
			return &holder, nil
		case pause >= againMax:
			return unknown(err), nil
		}
		time.Sleep(pause) // it is ending, or has only begun
	}
}

// unknown returns what is known of the holder after a lasting error of ask.
func unknown(err error) *Holder {
	// A proxy listens as long as it lives, and accepts connections: after these errors, another process holds the name.
	lasting := []error{errGone, errCut, unix.ECONNREFUSED, unix.EAGAIN}
	return &Holder{ForeignProcess: slices.ContainsFunc(lasting, func(known error) bool { return errors.Is(err, known) })}
}

// Peek returns the holder without taking the lock; nil if it is free.
func Peek() *Holder {
	l := NewLock()
	defer l.leave()
	if holder, err := l.ask(); err == nil {
		return &holder
	}
	return nil
}

// Acquire waits for the lock, and returns nil once this process holds it. It calls told with
// the holder at first, when it changes, and every 30 s. The wait ends when the holder does,
// however it ends: the kernel closes the connection.
func (l *Lock) Acquire(ctx context.Context, told func(Holder)) error {
	var last Holder
	var next time.Time
	tell := func(h Holder) {
		if now := time.Now(); h.PID != last.PID || now.After(next) {
			last, next = h, now.Add(toldAgain)
			told(h)
		}
	}
	for pause := againMin; ; pause = min(2*pause, againMax) {
		if free, err := l.bind(); free || err != nil {
			return err
		}
		switch holder, err := l.ask(); {
		case err == nil:
			tell(holder)
			began := time.Now()
			l.awaitEnd(ctx, next)
			if time.Since(began) > againMax {
				pause = againMin
			}
		case pause == againMax:
			tell(*unknown(err))
		}
		if !sleep.For(ctx, pause) {
			return ctx.Err()
		}
	}
}

// bind makes one attempt to take the lock.
func (l *Lock) bind() (free bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener != nil {
		return true, nil
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: l.name, Net: "unix"})
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("lock of this network namespace: %w", err)
	}
	l.listener = listener
	l.leave()
	go l.serve(listener)
	return true, nil
}

// ask returns the holder, and keeps the connection to it.
func (l *Lock) ask() (Holder, error) {
	if l.ahead != nil {
		return l.holder, nil
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: l.name, Net: "unix"})
	if err != nil {
		return Holder{}, err
	}
	peer, said, is, err := converse(conn, l.patience)
	if err != nil {
		return Holder{}, errors.Join(err, conn.Close())
	}
	before := l.holder
	l.holder = Holder{Process: holder.ProcessOf(int(peer.Pid)), ForeignProcess: is != friend}
	if l.holder.Command == "" && l.holder.PID == before.PID { // it is ending
		l.holder.Command = before.Command
	}
	// The kernel is more reliable than what a process says about itself.
	if l.holder.Command == "" && !l.holder.ForeignProcess {
		l.holder.Command = holder.Plain(said.Command)
	}
	l.ahead = conn
	return l.holder, nil
}

// converse tells a holder about this process and returns its answer, or an empty one if that is invalid. It fails if
// the holder has ended, or cut the connection before its standing was known.
func converse(conn *net.UnixConn, patience time.Duration) (peer *unix.Ucred, said answer, is standing, err error) {
	greeted := greet(conn, []byte{0})
	text := make([]byte, answerMax)
	peer, n, is, err := meet(conn, text, patience)
	switch {
	case peer == nil:
		return nil, said, is, err
	case is == gone:
		return nil, said, is, errGone
	case is != friend && errors.Join(greeted, err) != nil && !errors.Is(err, os.ErrDeadlineExceeded):
		return nil, said, is, errors.Join(errCut, greeted, err)
	}
	_ = json.Unmarshal(text[:n], &said)
	return peer, said, is, nil
}

// awaitEnd waits until the holder or the context ends, or until a time.
func (l *Lock) awaitEnd(ctx context.Context, until time.Time) {
	conn := l.ahead // the function below may still run after leave
	_ = conn.SetReadDeadline(until)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })
	_, err := io.Copy(io.Discard, conn)
	stop()
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		l.leave()
	}
}

// leave closes the connection to the holder.
func (l *Lock) leave() {
	if l.ahead != nil {
		_ = l.ahead.Close() // no data can be lost
		l.ahead = nil
	}
}

// serve answers connections until the lock is released.
func (l *Lock) serve(listener *net.UnixListener) {
	said, err := json.Marshal(answer{Command: holder.Self().Command})
	if err != nil {
		said = nil // a string always encodes
	}
	said = append(said, '\n')
	for {
		conn, err := listener.AcceptUnix()
		switch {
		case err == nil:
			go l.tell(conn, said)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			time.Sleep(100 * time.Millisecond) // no descriptor is left, for example
		}
	}
}

// tell sends the answer, and keeps the connection of a proxy open: when it closes, the lock is free.
func (l *Lock) tell(conn *net.UnixConn, said []byte) {
	defer conn.Close() // no data can be lost
	_, err := l.entrance.admit(conn, l.patience)
	l.mu.Lock()
	full := err != nil || len(l.asking) >= asksMax || l.listener == nil
	if !full {
		l.asking[conn] = struct{}{}
	}
	l.mu.Unlock()
	if err != nil {
		// Foreign processes get no descriptor: the kernel bounds those that are in flight.
		_ = conn.SetWriteDeadline(time.Now().Add(answerPatience))
		_, _ = conn.Write(said)
	} else if err = greet(conn, said); err == nil && !full {
		_, _ = io.Copy(io.Discard, conn)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.asking, conn)
}

// Waited reports whether any proxy waits for the end of this one.
func (l *Lock) Waited() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.asking) > 0
}

// Release releases the lock; one of the waiting processes takes it.
func (l *Lock) Release() {
	l.mu.Lock()
	listener, asking := l.listener, l.asking
	l.listener, l.asking = nil, map[*net.UnixConn]struct{}{}
	l.mu.Unlock()
	if listener == nil {
		return
	}
	_ = listener.Close() // first, so that a waiting process finds the name free
	for conn := range asking {
		_ = conn.Close()
	}
}
