// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// system are the directories of this machine whose content a program finds in its root: the machine's
// programs and their settings. Their own directories can take further mounts, such as /lib/modules.
// With Debian's merged /usr, the others are links.
var system = []string{"/usr", "/usr/lib", "/etc"}

// Exec turns this process, the first one of a PID namespace and the only one of a mount namespace,
// into the program. It returns only an error. The calling thread must be locked.
func (s Spec) Exec() error {
	prepare := s.build
	if s.Root == "/" {
		prepare = s.keep
	}
	if err := prepare(); err != nil {
		return fmt.Errorf("root file system in %s: %w", s.Root, err)
	}
	if err := s.confine(); err != nil {
		return fmt.Errorf("privileges: %w", err)
	}
	if err := os.Chdir(filepath.Join("/", s.WorkingDirectory)); err != nil {
		return err
	}
	return fmt.Errorf("exec %s: %w", s.Args[0], unix.Exec(s.Args[0], s.Args, s.Env))
}

// build mounts everything below Root and makes that the root.
func (s Spec) build() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", s.Root, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, dir := range system {
		if err := s.show(dir); err != nil {
			return err
		}
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if target, err := os.Readlink("/" + name); err == nil {
			if err := os.Symlink(target, filepath.Join(s.Root, name)); err != nil {
				return err
			}
		}
	}
	if err := s.kernel(); err != nil {
		return err
	}
	for _, mount := range s.Mounts {
		if err := s.bind(mount); err != nil {
			return err
		}
	}
	return s.pivot()
}

// keep leaves this machine's root as it is, but for the mounts, and read-only if asked for. /proc/sys
// stays writable where the kernel lets the capabilities write.
func (s Spec) keep() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if s.ReadOnlyRoot {
		readOnly := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, readOnly); err != nil {
			return fmt.Errorf("read-only: %w", err)
		}
		writable := &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(unix.AT_FDCWD, "/proc", unix.AT_RECURSIVE, writable); err != nil {
			return fmt.Errorf("/proc: %w", err)
		}
	}
	for _, m := range s.Mounts {
		if err := unix.Mount(m.Source, m.Target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("%s at %s: %w", m.Source, m.Target, err)
		}
		attr := &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
		if m.ReadOnly {
			attr = &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		}
		if err := unix.MountSetattr(unix.AT_FDCWD, m.Target, 0, attr); err != nil {
			return fmt.Errorf("%s: %w", m.Target, err)
		}
	}
	return nil
}

// show makes what a directory of this machine contains visible, read-only.
func (s Spec) show(dir string) error {
	if err := os.MkdirAll(filepath.Join(s.Root, dir), 0o755); err != nil {
		return err
	}
	content, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range content {
		path := filepath.Join(dir, entry.Name())
		switch {
		case slices.Contains(system, path):
		case entry.Type()&os.ModeSymlink != 0:
			var target string
			if target, err = os.Readlink(path); err == nil {
				err = os.Symlink(target, filepath.Join(s.Root, path))
			}
		default:
			err = s.bind(Mount{path, path, true})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// kernel mounts /proc, /sys and /dev, read-only where the program is not privileged.
func (s Spec) kernel() error {
	proc := filepath.Join(s.Root, "proc")
	err := errors.Join(os.Mkdir(proc, 0o755),
		unix.Mount("proc", proc, "proc", unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV, ""),
		os.Mkdir(filepath.Join(s.Root, "tmp"), 0o1777))
	if err != nil {
		return err
	}
	if !s.Privileged {
		if err := s.bind(Mount{filepath.Join(proc, "sys"), "/proc/sys", true}); err != nil {
			return err
		}
	}
	for _, device := range []string{"null", "zero", "random", "urandom"} {
		if err := s.bind(Mount{"/dev/" + device, "/dev/" + device, false}); err != nil {
			return err
		}
	}
	return s.bind(Mount{"/sys", "/sys", !s.Privileged})
}

// bind mounts a file or directory at its target, which it makes.
func (s Spec) bind(m Mount) error {
	info, err := os.Stat(m.Source)
	if err != nil {
		return err
	}
	target := filepath.Join(s.Root, m.Target)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else if _, missing := os.Stat(target); missing != nil {
		err = os.WriteFile(target, nil, 0o644)
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(m.Source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("%s at %s: %w", m.Source, m.Target, err)
	}
	if !m.ReadOnly {
		return nil
	}
	return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// pivot makes Root the root of this mount namespace and forgets the previous one.
func (s Spec) pivot() error {
	if err := errors.Join(os.Chdir(s.Root), unix.PivotRoot(".", "."), unix.Unmount(".", unix.MNT_DETACH)); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if !s.ReadOnlyRoot {
		return nil
	}
	return unix.Mount("", "/", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// confine leaves this thread with the user and the capabilities of the program. The kernel gives
// root those of the bounding set when it starts a program, and another user the ambient ones.
func (s Spec) confine() error {
	if s.NoNewPrivileges {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	if s.Privileged {
		return nil
	}
	var kept uint64
	for _, name := range s.Capabilities {
		bit, err := number(name)
		if err != nil {
			return err
		}
		kept |= 1 << bit
	}
	for bit := range uint(64) {
		if kept&(1<<bit) != 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(bit), 0, 0, 0); errors.Is(err, unix.EINVAL) {
			break // beyond the last one of this kernel
		} else if err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	if s.User != 0 {
		if err := s.become(kept); err != nil {
			return err
		}
	} else if err := capabilities(kept, 0); err != nil {
		return err
	}
	if s.Seccomp {
		return reject(rejected)
	}
	return nil
}

// become makes the thread one of another user, who has no groups but his own. Only this thread
// matters: it is the one that executes the program.
func (s Spec) become(kept uint64) error {
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return err
	}
	for _, call := range [][4]uintptr{
		{unix.SYS_SETGROUPS, 0, 0, 0},
		{unix.SYS_SETRESGID, uintptr(s.User), uintptr(s.User), uintptr(s.User)},
		{unix.SYS_SETRESUID, uintptr(s.User), uintptr(s.User), uintptr(s.User)},
	} {
		if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
			return errno
		}
	}
	if err := capabilities(kept, kept); err != nil {
		return err
	}
	for bit := range uint(64) {
		if kept&(1<<bit) == 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(bit), 0, 0); err != nil {
			return err
		}
	}
	// Another user's process does not die with its parent any more.
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
}

// capabilities sets those of the thread.
func capabilities(kept, inheritable uint64) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{
		{Effective: uint32(kept), Permitted: uint32(kept), Inheritable: uint32(inheritable)},
		{Effective: uint32(kept >> 32), Permitted: uint32(kept >> 32), Inheritable: uint32(inheritable >> 32)},
	}
	return unix.Capset(&header, &data[0])
}
