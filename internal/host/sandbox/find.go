// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Running returns the process IDs of this user's sandboxes on this host. If one was started in the
// working directory, the others are left out. Processes in containers do not count: a tenant could
// answer in place of the proxy.
func Running() []int {
	var here, all []int
	wd, _ := os.Stat(".") // without it, no sandbox was started here
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		dir := filepath.Dir(path)
		environ, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(append([]byte{0}, environ...), []byte("\x00"+marker+"=")) || !isOwn(dir) || !leads(dir) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		all = append(all, pid)
		if info, err := os.Stat(dir + "/cwd"); err == nil && wd != nil && os.SameFile(info, wd) {
			here = append(here, pid)
		}
	}
	if len(here) > 0 {
		return here
	}
	return all
}

// isOwn reports whether a process belongs to this user.
func isOwn(dir string) bool {
	var status unix.Stat_t
	return unix.Stat(dir, &status) == nil && int(status.Uid) == os.Getuid()
}

// leads reports whether a process is the first one of its user namespace, and was started in the
// mount namespace of this process: its parent has another user namespace, and this mount namespace.
func leads(dir string) bool {
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return false
	}
	// "PID (NAME) STATE PPID ..."; a name may contain spaces and parentheses.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return false
	}
	own, err := os.Readlink(dir + "/ns/user")
	parent, parentErr := os.Readlink("/proc/" + fields[1] + "/ns/user")
	here, hereErr := os.Readlink("/proc/self/ns/mnt")
	mount, mountErr := os.Readlink("/proc/" + fields[1] + "/ns/mnt")
	return errors.Join(err, parentErr, hereErr, mountErr) == nil && own != parent && here == mount
}

// Path returns the name under which this process reaches a file of a sandbox.
func Path(pid int, file string) string { return fmt.Sprintf("/proc/%d/root%s", pid, file) }

// Exec replaces this program by a command inside a sandbox, in the same directory. Without a command, it starts a
// shell.
func Exec(pid int, command ...string) error {
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return fmt.Errorf("sandbox: %w; install util-linux", err)
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	if len(command) == 0 {
		shell := os.Getenv("SHELL")
		if shell == "" {
			shell = "/bin/sh"
		}
		command = []string{shell}
	}
	// nsenter changes to the root directory with the mount namespace.
	args := append([]string{"nsenter", "--target", strconv.Itoa(pid), "--user", "--net", "--mount", "--preserve-credentials",
		"sh", "-c", `cd -- "$0" && exec "$@"`, dir}, command...)
	return fmt.Errorf("sandbox: %w", syscall.Exec(nsenter, args, os.Environ()))
}
