// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Each process starts a conversation with a proof that it has CAP_NET_ADMIN in the user namespace of
// this network namespace: it sets the clock of its end of the connection to CLOCK_TAI, which takes that
// capability (SO_TXTIME; on a Unix socket it has no effect), and passes that end to the other process.
//
// A process cannot present the proof of another one. The receiver demands a socket that is connected
// to the receiver itself (SO_PEERCRED), and a process proves its own connections only.
//
// A proof is needed where /proc shows nothing: between containers.

// guestsMax bounds the connections whose first message is awaited.
const guestsMax = 64

var (
	// errCut means that the other process closed the connection instead of answering.
	errCut = errors.New("the process that listens closes connections")
	// errNoProxy means that the other process may not change the rules.
	errNoProxy = errors.New("is no proxy")
)

// greet sends a message with the proof. A process that cannot prove anything sends the message alone.
func greet(conn *net.UnixConn, message []byte) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	_ = conn.SetWriteDeadline(time.Now().Add(answerPatience))
	clock := binary.NativeEndian.AppendUint32(nil, unix.CLOCK_TAI)
	option := string(binary.NativeEndian.AppendUint32(clock, 0)) // no flags
	own := -1
	err = raw.Control(func(fd uintptr) {
		if unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_TXTIME, option) == nil {
			own, _ = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) // it lasts until it is sent
		}
	})
	if err != nil {
		return err
	}
	if own >= 0 {
		defer unix.Close(own) // nothing was written
		_, _, err = conn.WriteMsgUnix(message, unix.UnixRights(own), nil)
	}
	// Other processes of the same user may have used up the limit of descriptors in flight.
	if own < 0 || errors.Is(err, unix.ETOOMANYREFS) {
		_, err = conn.Write(message)
	}
	return err
}

// hear reads the first message, and reports whether a proof came with it.
func hear(conn *net.UnixConn, message []byte, patience time.Duration) (n int, proved bool, err error) {
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	defer conn.SetReadDeadline(time.Time{}) // it fails on a closed connection only
	rights := make([]byte, unix.CmsgSpace(4))
	n, size, _, _, err := conn.ReadMsgUnix(message, rights)
	if err != nil {
		return 0, false, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:size])
	if err != nil {
		return 0, false, err
	}
	for i := range messages {
		fds, _ := unix.ParseUnixRights(&messages[i]) // other messages have none
		for _, fd := range fds {
			proved = proved || proves(conn, fd)
			_ = unix.Close(fd) // the connection would outlive the other process
		}
	}
	return n, proved, nil
}

// proves reports whether a descriptor that came over a connection is a proof.
func proves(conn *net.UnixConn, fd int) bool {
	clock, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TXTIME)
	if err != nil || clock != unix.CLOCK_TAI {
		return false
	}
	// The other end of the socket that is the proof must be in this process.
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil || int(peer.Pid) != os.Getpid() {
		return false
	}
	// An earlier process with the same ID may have been in a network namespace that any process can create.
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	same := false
	err = raw.Control(func(here uintptr) {
		ours, err1 := networkOf(int(here))
		theirs, err2 := networkOf(fd)
		same = err1 == nil && err2 == nil && ours == theirs
	})
	return err == nil && same
}

// networkOf returns the device and the inode of the network namespace of a socket. It needs CAP_NET_ADMIN there.
func networkOf(socket int) (id [2]uint64, err error) {
	fd, err := unix.IoctlRetInt(socket, unix.SIOCGSKNS)
	if err != nil {
		return id, err
	}
	defer unix.Close(fd) // nothing was written
	var stat unix.Stat_t
	err = unix.Fstat(fd, &stat)
	return [2]uint64{uint64(stat.Dev), stat.Ino}, err
}

// meet judges the process at the other end of a connection, and reads its first message. The error of
// a friend is that of reading.
func meet(conn *net.UnixConn, message []byte, patience time.Duration) (peer *unix.Ucred, n int, is standing, err error) {
	peer, is, err = peerOf(conn)
	if err != nil || is == stranger || is == gone {
		return peer, 0, is, err
	}
	n, proved, err := hear(conn, message, patience)
	if is == unseen {
		is = either(proved)
	}
	return peer, n, is, err
}

// entrance bounds the connections on which the other process has sent nothing yet.
type entrance struct {
	mu     sync.Mutex
	guests []*net.UnixConn
	closed bool
}

// admit returns the process at the other end, and an error unless it may be a proxy. A newer
// connection cuts the oldest one: a proxy connects again, and sends something immediately.
func (e *entrance) admit(conn *net.UnixConn, patience time.Duration) (*unix.Ucred, error) {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil, net.ErrClosed
	}
	if len(e.guests) >= guestsMax {
		_ = e.guests[0].Close()
		e.guests = slices.Delete(e.guests, 0, 1)
	}
	e.guests = append(e.guests, conn)
	e.mu.Unlock()
	peer, _, is, err := meet(conn, make([]byte, 1), patience)
	e.mu.Lock()
	defer e.mu.Unlock()
	at := slices.Index(e.guests, conn)
	if at < 0 {
		return peer, net.ErrClosed
	}
	e.guests = slices.Delete(e.guests, at, at+1)
	if is != friend {
		err = errNoProxy
	}
	return peer, err
}

// close closes the connections on which nothing was sent yet, and all later ones.
func (e *entrance) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, conn := range e.guests {
		_ = conn.Close()
	}
	e.guests, e.closed = nil, true
}
