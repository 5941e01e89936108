// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/holder"
)

// passName is the abstract socket at which a proxy that ends passes its listening sockets on.
const passName = "@sluice/sockets"

const (
	// passMax bounds the sockets in one message; the kernel takes 253.
	passMax = 200
	// passPatience bounds the wait for one message, and for the successor's first one.
	passPatience = 5 * time.Second
	// strangersMax bounds the processes that an error names.
	strangersMax = 3
)

// Offer passes listening sockets on to the proxy that takes the rules over: only the holder of the [Lock] requests
// them. Make it before Release of the lock, and Give after it.
type Offer struct {
	listener *net.UnixListener
	entrance entrance
	// patience bounds the wait for the successor.
	patience time.Duration
}

// NewOffer makes an offer.
func NewOffer() (*Offer, error) {
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: passName, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("pass sockets on: %w", err)
	}
	return &Offer{listener: listener, patience: passPatience}, nil
}

// Give passes sockets on. It waits until the successor has closed the connection, which means that its own rules are
// applied, or until the patience ends. It fails if no proxy asks within 5 s.
func (o *Offer) Give(sockets []*os.File, patience time.Duration) error {
	defer o.listener.Close() // no other process requests them
	conn, err := o.successor()
	if conn != nil {
		defer conn.Close() // each message was answered
	}
	if err != nil {
		return fmt.Errorf("pass sockets on: %w", err)
	}
	for ; len(sockets) > 0; sockets = sockets[min(len(sockets), passMax):] {
		if err := give(conn, sockets[:min(len(sockets), passMax)]); err != nil {
			return fmt.Errorf("pass sockets on: %w", err)
		}
	}
	if err := give(conn, nil); err != nil {
		return fmt.Errorf("pass sockets on: %w", err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	_, _ = conn.Read(make([]byte, 1)) // ends when the successor closes it, or ends
	return nil
}

// judgedMax bounds the connections that are judged at a time, and so the file descriptors.
const judgedMax = 1000

// successor waits for the proxy that asks, and greets it. Any process can connect: it closes connections of strangers.
func (o *Offer) successor() (*net.UnixConn, error) {
	_ = o.listener.SetDeadline(time.Now().Add(o.patience))
	var (
		found     = make(chan *net.UnixConn, 1)
		judged    sync.WaitGroup
		mu        sync.Mutex // guards strangers
		strangers []error
		judging   = make(chan struct{}, judgedMax)
	)
	judge := func(conn *net.UnixConn) {
		err := o.trusted(conn)
		if err == nil {
			select {
			case found <- conn:
				_ = o.listener.SetDeadline(time.Now())
				return
			default: // the successor was found before
			}
		}
		_ = conn.Close() // no socket was sent
		mu.Lock()
		defer mu.Unlock()
		if err != nil && len(strangers) < strangersMax {
			strangers = append(strangers, err)
		}
	}
	for {
		conn, err := o.listener.AcceptUnix()
		if err == nil {
			judging <- struct{}{}
			judged.Go(func() { judge(conn); <-judging })
			continue
		}
		if errors.Is(err, unix.EMFILE) { // strangers connect faster than their connections are closed
			time.Sleep(10 * time.Millisecond)
			continue
		}
		o.entrance.close()
		judged.Wait()
		select {
		case conn = <-found:
			return conn, greet(conn, []byte{0})
		default:
			return nil, errors.Join(append(strangers, err)...)
		}
	}
}

// trusted returns an error unless the process at the other end may do what this one may.
func (o *Offer) trusted(conn *net.UnixConn) error {
	peer, err := o.entrance.admit(conn, answerPatience)
	if peer != nil && err != nil {
		err = fmt.Errorf("process %d of user %d %w", peer.Pid, peer.Uid, errNoProxy)
	}
	return err
}

// give sends one message, and waits for the answer: the kernel bounds the descriptors in flight.
func give(conn *net.UnixConn, sockets []*os.File) error {
	_ = conn.SetDeadline(time.Now().Add(passPatience))
	fds := make([]int, len(sockets))
	for i, socket := range sockets {
		fds[i] = int(socket.Fd())
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := conn.WriteMsgUnix([]byte{byte(len(fds))}, rights, nil); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}

// Receive asks the proxy that has just released the lock, for which this one waited in Acquire, for
// its listening sockets. That proxy serves until done is closed. Without an offer, there are no
// sockets and done is nil. Only the goroutine of Acquire may call it.
func (l *Lock) Receive() (sockets []*os.File, done io.Closer, err error) {
	conn, from, err := dialOffer(l.offerPatience)
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil, nil, nil // that proxy offers none, or its release passes none on
	}
	if err == nil && from != l.holder.PID {
		err = fmt.Errorf("%s offers them, and %s had the lock", holder.ProcessOf(from), l.holder)
	}
	for err == nil {
		var part []*os.File
		if part, err = receive(conn); err == nil && len(part) == 0 {
			return sockets, conn, nil
		}
		sockets = append(sockets, part...)
	}
	for _, socket := range sockets {
		err = errors.Join(err, socket.Close())
	}
	if conn != nil {
		err = errors.Join(err, conn.Close())
	}
	return nil, nil, fmt.Errorf("take sockets over: %w", err)
}

// dialOffer connects to the offer of a proxy, and returns its process ID. Foreign processes may have filled the queue
// of the offer, which empties quickly, or have made that proxy cut the connection.
func dialOffer(patience time.Duration) (conn *net.UnixConn, from int, err error) {
	cut := error(nil)
	for deadline := time.Now().Add(patience); ; time.Sleep(againMin) {
		conn, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: passName, Net: "unixpacket"})
		if err == nil {
			from, err = offering(conn)
			if err == nil {
				return conn, from, nil
			}
			_ = conn.Close() // no socket has arrived
		}
		if errors.Is(err, errCut) {
			cut = err
		}
		if errors.Is(err, unix.ECONNREFUSED) && cut != nil {
			return nil, 0, cut // the offer has ended
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, errCut) || time.Now().After(deadline) {
			return nil, 0, err
		}
	}
}

// offering greets the process that makes an offer, and returns its ID.
func offering(conn *net.UnixConn) (pid int, err error) {
	peer, is, err := peerOf(conn)
	if err == nil && is != stranger && is != gone {
		if err = greet(conn, []byte{0}); err == nil {
			peer, _, is, err = meet(conn, make([]byte, 1), answerPatience)
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, errors.Join(errCut, err)
		}
	}
	if err == nil && is != friend {
		err = fmt.Errorf("process %d of user %d %w", peer.Pid, peer.Uid, errNoProxy)
	}
	if err != nil {
		return 0, err
	}
	return int(peer.Pid), nil
}

// receive returns the sockets of one message; none from the last one.
func receive(conn *net.UnixConn) (sockets []*os.File, err error) {
	_ = conn.SetDeadline(time.Now().Add(passPatience))
	said, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4*passMax))
	n, size, _, _, err := conn.ReadMsgUnix(said, rights)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:size])
	if err != nil {
		return nil, err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return nil, err
		}
		for _, fd := range fds {
			sockets = append(sockets, os.NewFile(uintptr(fd), "passed"))
		}
	}
	if n == 0 || int(said[0]) != len(sockets) { // the descriptors of this process are used up, for example
		for _, socket := range sockets {
			_ = socket.Close() // the previous owner has it still
		}
		return nil, errors.New("the other process ended, or not all sockets arrived")
	}
	_, err = conn.Write(said)
	return sockets, err
}
