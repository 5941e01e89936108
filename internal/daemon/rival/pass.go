package rival

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// passName is the abstract socket at which a proxy that ends passes its listening sockets on.
const passName = "@sluice/sockets"

const (
	// passMax bounds the sockets in one message; the kernel takes 253.
	passMax = 200
	// passPatience bounds the wait for one message, and for the successor's first one.
	passPatience = 5 * time.Second
)

// Offer passes listening sockets on to the proxy that takes the rules over, which nobody but the
// holder of the [Lock] asks for. Make it before Release of the lock, and Give after it.
type Offer struct{ listener *net.UnixListener }

// NewOffer makes an offer.
func NewOffer() (*Offer, error) {
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: passName, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("pass sockets on: %w", err)
	}
	return &Offer{listener}, nil
}

// Give passes sockets on. It waits until the successor has closed the connection, which says that
// its own rules are in force, or until the patience ends. It fails if nobody asks.
func (o *Offer) Give(sockets []*os.File, patience time.Duration) error {
	defer o.listener.Close() //nolint:errcheck // nobody else asks
	_ = o.listener.SetDeadline(time.Now().Add(passPatience))
	conn, err := o.listener.AcceptUnix()
	if err != nil {
		return fmt.Errorf("pass sockets on: %w", err)
	}
	defer conn.Close() //nolint:errcheck // each message was answered
	if err := trust(conn); err != nil {
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

// give sends one message, and waits for the answer: the kernel bounds what is under way.
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

// Receive asks the proxy that has just released the lock for its listening sockets. That proxy
// serves until done is closed. Without an offer, there are no sockets and done is nil.
func Receive() (sockets []*os.File, done io.Closer, err error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: passName, Net: "unixpacket"})
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil, nil, nil // it has none, or is of a release that passes none on
	}
	if err == nil {
		err = trust(conn)
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
			_ = socket.Close() // the former owner has it still
		}
		return nil, errors.New("the other process has ended, or not all sockets have arrived")
	}
	_, err = conn.Write(said)
	return sockets, err
}

// trust returns an error unless the process at the other end may do what this one may.
func trust(conn *net.UnixConn) error {
	peer, err := credentials(conn)
	if err != nil {
		return err
	}
	if !trusted(peer) {
		return fmt.Errorf("process %d of user %d is no proxy", peer.Pid, peer.Uid)
	}
	return nil
}

func trusted(peer *unix.Ucred) bool {
	return peer.Uid == 0 || int(peer.Uid) == os.Geteuid() || administers(int(peer.Pid))
}
