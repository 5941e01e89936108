// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// features are what a kernel may lack, with a check for each.
var features = map[string]func() error{
	"sctp": func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP)
		if err != nil {
			return fmt.Errorf("this kernel has no SCTP (%w): played in the virtual machine", err)
		}
		return unix.Close(fd)
	},
}

// Has returns why a feature is missing here, or nil.
func Has(feature string) error {
	find, ok := features[feature]
	if !ok {
		return fmt.Errorf("unknown feature %q", feature)
	}
	return find()
}

// withoutNfnetlink is the first argument with which this program becomes another one for which the
// kernel has no netfilter netlink, and so no nf_tables.
const withoutNfnetlink = "without-nfnetlink"

// LackNfnetlink makes proxies that start from now on find such a kernel.
func (w *World) LackNfnetlink() { w.StartUnder([]string{"/proc/self/exe", withoutNfnetlink}) }

func init() {
	if len(os.Args) < 3 || os.Args[1] != withoutNfnetlink {
		return
	}
	err := becomeWithoutNfnetlink(os.Args[2], os.Args[2:])
	fmt.Fprintln(os.Stderr, strings.Join(os.Args, " ")+":", err)
	os.Exit(127)
}

// becomeWithoutNfnetlink replaces the process. The system call for the socket returns the error of
// a kernel without the protocol.
func becomeWithoutNfnetlink(path string, args []string) error {
	runtime.LockOSThread() // a filter is the thread's, and exec keeps this one's
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	// The fields of struct seccomp_data: the number at 0, the arguments from 16 on. All values are
	// below 2^32, and the low half comes first.
	const number, family, protocol = 0, 16, 32
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	// unlessEqual skips so many instructions unless the value is equal.
	unlessEqual := func(value uint32, further uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: further}
	}
	end := func(verdict uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: verdict}
	}
	filter := []unix.SockFilter{
		load(number), unlessEqual(unix.SYS_SOCKET, 5),
		load(family), unlessEqual(unix.AF_NETLINK, 3),
		load(protocol), unlessEqual(unix.NETLINK_NETFILTER, 1),
		end(unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT)),
		end(unix.SECCOMP_RET_ALLOW),
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return err
	}
	return unix.Exec(path, args, os.Environ())
}

// masquerade mounts other files over the machine's, and then becomes another program. It runs in a
// mount namespace of its own.
const masquerade = `mount --bind "$1" /sys/devices/system/cpu
mount --bind "$2" /proc/sys/net/netfilter/nf_conntrack_max
mount --bind "$3" /sys/module/nf_conntrack/parameters/hashsize
shift 3
exec "$@"`

// TableSize is the size of the conntrack table: the largest number of connections, and the number of
// buckets.
type TableSize struct{ Max, Hash string }

// TableSize returns the size that the proxy sets by default on a machine with a number of processors and
// a size. The proxy finds other files in place of those of /proc and /sys.
func (w *World) TableSize(ctx context.Context, processors int, before TableSize) (after TableSize, err error) {
	dir, err := os.MkdirTemp(w.options.Dir, "machine-")
	if err != nil {
		return after, err
	}
	cpus, size, hash := filepath.Join(dir, "cpu"), filepath.Join(dir, "max"), filepath.Join(dir, "hashsize")
	for i := range processors {
		if err := os.MkdirAll(filepath.Join(cpus, fmt.Sprintf("cpu%d", i), "topology"), 0o755); err != nil {
			return after, err
		}
	}
	for file, text := range map[string]string{size: before.Max, hash: before.Hash} {
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			return after, err
		}
	}
	binary, err := filepath.Abs(w.options.Binary)
	if err != nil {
		return after, err
	}
	if _, err := w.Run(ctx, "unshare", "--mount", "--propagation", "private", "sh", "-e", "-c", masquerade, "sh", cpus, size, hash,
		binary, "proxy", "--init-only", "--proxy-mode="+w.options.Mode, "--sluice-state-dir="+filepath.Join(dir, "state")); err != nil {
		return after, err
	}
	for file, text := range map[string]*string{size: &after.Max, hash: &after.Hash} {
		read, err := os.ReadFile(file)
		if err != nil {
			return after, err
		}
		*text = strings.TrimSpace(string(read))
	}
	return after, nil
}
