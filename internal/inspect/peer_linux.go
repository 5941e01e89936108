// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"errors"
	"net"
	"syscall"
)

// peerOf returns the process that listens at the other end of a Unix connection, or 0.
func peerOf(conn net.Conn) (pid int32) {
	unix, is := conn.(*net.UnixConn)
	if !is {
		return 0
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // after an error, the process is unknown
		if peer, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			pid = peer.Pid
		}
	})
	return pid
}

// tooManyWait reports whether the backlog of a socket is full, because its process accepts no connections.
func tooManyWait(err error) bool { return errors.Is(err, syscall.EAGAIN) }
