// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// standing is whether the process at the other end of a connection may be a proxy.
type standing int

const (
	// stranger: it may not change the rules, and so cannot be a proxy.
	stranger standing = iota
	// friend: it may do what this process may.
	friend
	// unseen: it is root, and /proc does not show what it may do. It has to prove that; see greet.
	unseen
	// gone: it ended. Its connection ends too, unless it passed that on to another process.
	gone
)

// errGone means that the process that opened a socket ended.
var errGone = errors.New("the process that listens ended")

// peerOf returns the process at the other end, which is the one that listened or the one that
// connected, and its standing.
func peerOf(conn *net.UnixConn) (peer *unix.Ucred, is standing, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, stranger, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		if peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			is = standingOf(int(fd), peer)
		}
	})
	return peer, is, errors.Join(controlErr, err)
}

// standingOf judges the process that the kernel recorded for a connection. A user other than root is trusted if this
// process has the same user. Any other process needs CAP_NET_ADMIN, which root in a container usually lacks. A process
// of another PID namespace, or one that /proc hides, cannot be inspected.
func standingOf(fd int, peer *unix.Ucred) standing {
	same := int(peer.Uid) == os.Geteuid()
	switch {
	case peer.Uid != 0 && same:
		return friend
	case peer.Pid == 0:
		return hidden(peer)
	}
	may, err := administers(int(peer.Pid), peer.Uid)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH):
		if errors.Is(unix.Kill(int(peer.Pid), 0), unix.ESRCH) {
			return gone
		}
		return hidden(peer)
	case err != nil:
		return stranger
	case may && !lives(fd):
		return gone // what was read may be about a later process with the same ID
	default:
		return either(may)
	}
}

// hidden judges a process that cannot be inspected.
func hidden(peer *unix.Ucred) standing {
	if peer.Uid == 0 {
		return unseen
	}
	return stranger
}

func either(is bool) standing {
	if is {
		return friend
	}
	return stranger
}

// administers reports whether a process of a user has CAP_NET_ADMIN in the user namespace of this one, and so could
// change the rules without the lock as well. A user namespace that any process can create has a different user map than
// ours. A process whose user has changed since it connected runs another program: a setuid one, which any process may
// run.
func administers(pid int, user uint32) (bool, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false, err
	}
	theirs, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", pid))
	if err != nil {
		return false, err
	}
	ours, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || !bytes.Equal(theirs, ours) {
		return false, err
	}
	var may, is bool
	for line := range strings.Lines(string(status)) {
		words := strings.Fields(line)
		switch {
		case len(words) == 2 && words[0] == "CapEff:":
			bits, err := strconv.ParseUint(words[1], 16, 64)
			may = err == nil && bits&(1<<unix.CAP_NET_ADMIN) != 0
		case len(words) == 5 && words[0] == "Uid:": // real, effective, saved, file system
			is = words[2] == strconv.FormatUint(uint64(user), 10)
		}
	}
	return may && is, nil
}

// lives reports whether the process at the other end of a connection has not ended, and so whether
// its ID is still its own. Kernels before Linux 6.5 cannot tell; there, it reports true.
func lives(fd int) bool {
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		return errors.Is(err, unix.ENOPROTOOPT)
	}
	defer unix.Close(pidfd) // nothing was written
	ended, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
	return err == nil && ended == 0
}
