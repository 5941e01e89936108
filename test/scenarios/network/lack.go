package network

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

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
