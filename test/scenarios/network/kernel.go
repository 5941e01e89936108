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

// features are what a kernel may lack, and how to find out.
var features = map[string]func() error{
	"sctp": func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP)
		if err != nil {
			return fmt.Errorf("this kernel has no SCTP (%w): played in the virtual machine", err)
		}
		return unix.Close(fd)
	},
}

// Has says why a feature is missing here, or nil.
func Has(feature string) error {
	find, ok := features[feature]
	if !ok {
		return fmt.Errorf("nobody knows the feature %q", feature)
	}
	return find()
}

// withoutNfnetlink is the first word with which this program, started again, becomes
// another one for which the kernel was built without netfilter's netlink, and so
// without nf_tables.
const withoutNfnetlink = "without-nfnetlink"

// LackNfnetlink starts proxies from now on as on such a kernel.
func (w *World) LackNfnetlink() { w.StartUnder([]string{"/proc/self/exe", withoutNfnetlink}) }

func init() {
	if len(os.Args) < 3 || os.Args[1] != withoutNfnetlink {
		return
	}
	err := becomeWithoutNfnetlink(os.Args[2], os.Args[2:])
	fmt.Fprintln(os.Stderr, strings.Join(os.Args, " ")+":", err)
	os.Exit(127)
}

// becomeWithoutNfnetlink replaces the process. The system call for the socket gives
// the error that it gives where the protocol is not built in.
func becomeWithoutNfnetlink(path string, args []string) error {
	runtime.LockOSThread() // a filter is the thread's, and exec keeps this one's
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	// The fields of struct seccomp_data: the number at 0, the arguments from 16 on.
	// All values are below 2^32, and the low half comes first.
	const number, family, protocol = 0, 16, 32
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	// unlessEqual goes so many instructions further if the value is another one.
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

// masquerade hides files of the machine behind others, and then becomes another
// program. It is run in a mount namespace of its own.
const masquerade = `mount --bind "$1" /sys/devices/system/cpu
mount --bind "$2" /proc/sys/net/netfilter/nf_conntrack_max
mount --bind "$3" /sys/module/nf_conntrack/parameters/hashsize
shift 3
exec "$@"`

// TableSize tells which size of the kernel's table of connections the proxy asks for
// on a machine with a number of processors, with its own defaults: in place of the
// files of /proc and /sys it finds others.
func (w *World) TableSize(ctx context.Context, processors int) (string, error) {
	dir, err := os.MkdirTemp(w.options.Dir, "machine-")
	if err != nil {
		return "", err
	}
	cpus, size, hash := filepath.Join(dir, "cpu"), filepath.Join(dir, "max"), filepath.Join(dir, "hashsize")
	for i := range processors {
		if err := os.MkdirAll(filepath.Join(cpus, fmt.Sprintf("cpu%d", i), "topology"), 0o755); err != nil {
			return "", err
		}
	}
	for _, file := range []string{size, hash} {
		if err := os.WriteFile(file, []byte("4096\n"), 0o600); err != nil {
			return "", err
		}
	}
	binary, err := filepath.Abs(w.options.Binary)
	if err != nil {
		return "", err
	}
	if _, err := w.Run(ctx, "unshare", "--mount", "--propagation", "private", "sh", "-e", "-c", masquerade, "sh", cpus, size, hash,
		binary, "proxy", "--init-only", "--proxy-mode="+w.options.Mode, "--sluice-state-dir="+filepath.Join(dir, "state")); err != nil {
		return "", err
	}
	text, err := os.ReadFile(size)
	return strings.TrimSpace(string(text)), err
}
