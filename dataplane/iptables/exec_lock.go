package iptables

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lockEnv names another lock file, for sandboxes; the programs obey it, too
// (seen with 1.8.9).
const lockEnv = "XTABLES_LOCKFILE"

// lockDefault is the lock that all users of iptables on a node share.
const lockDefault = "/run/xtables.lock"

// LockPath is the lock file that the programs use.
func LockPath() string {
	if path := os.Getenv(lockEnv); path != "" {
		return path
	}
	return lockDefault
}

// describeHolder says who holds the lock, as far as this process can see it.
func describeHolder(path string) string {
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return fmt.Sprintf("who holds %s is not known: %v", path, err)
	}
	defer locks.Close() //nolint:errcheck // opened for reading, nothing can be lost
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return fmt.Sprintf("who holds %s is not known: %v", path, err)
	}
	pid := holder(locks, uint64(stat.Dev), stat.Ino)
	switch pid {
	case "":
		return fmt.Sprintf("%s has been released since", path)
	case "0", "-1":
		// The kernel shows pid 0 for a process outside this pid namespace.
		return fmt.Sprintf("%s is held by a process in another pid namespace", path)
	}
	comm, err := os.ReadFile(filepath.Join("/proc", pid, "comm"))
	if err != nil {
		// The one that locked may have left the lock to its child.
		return fmt.Sprintf("%s is held by process %s, which has ended", path, pid)
	}
	return fmt.Sprintf("%s is held by %s (pid %s)", path, strings.TrimSpace(string(comm)), pid)
}

// holder finds the process with a flock on a file in /proc/locks, whose lines
// read "1: FLOCK ADVISORY WRITE pid major:minor:inode start end", with device
// numbers in hexadecimal and the inode in decimal. A line with "->" behind the
// number is a process that waits.
func holder(locks io.Reader, dev, inode uint64) (pid string) {
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(dev), unix.Minor(dev), inode)
	lines := bufio.NewScanner(locks)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) >= 6 && fields[1] == "FLOCK" && fields[5] == file {
			return fields[4]
		}
	}
	return ""
}

// LockShared tells whether the lock file is the host's, so that it keeps other
// programs on the node out. A proxy with a lock of its own (a container without
// the host's /run/xtables.lock) overwrites what others write and is overwritten
// by them.
//
// It compares with the host's file where the host's processes are visible.
// From within a pid namespace it can tell only that the file lies on the
// container's own root file system, and takes anything mounted for the host's.
// A file that only our environment names is nobody else's.
func LockShared() (bool, error) {
	path := LockPath()
	if path != lockDefault {
		if same, err := sameFile(path, lockDefault); err != nil || !same {
			return false, err
		}
	}
	return lockShared(path, "/proc")
}

func lockShared(path, proc string) (bool, error) {
	pidNamespace, err := os.Readlink(filepath.Join(proc, "self/ns/pid"))
	if err != nil {
		return false, fmt.Errorf("find out whether %s is the host's: %w", path, err)
	}
	if pidNamespace == initialPIDNamespace {
		same, err := sameFile(path, filepath.Join(proc, "1/root", path))
		if err != nil {
			return false, fmt.Errorf("find out whether %s is the host's: %w", path, err)
		}
		return same, nil
	}
	mounts, err := os.Open(filepath.Join(proc, "self/mountinfo"))
	if err != nil {
		return false, fmt.Errorf("find out whether %s is the host's: %w", path, err)
	}
	defer mounts.Close() //nolint:errcheck // opened for reading, nothing can be lost
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		resolved = path
	}
	return mountOf(mounts, resolved) != "/", nil
}

// initialPIDNamespace is what /proc/self/ns/pid reads on the host: the inode is
// fixed (PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h).
const initialPIDNamespace = "pid:[4026531836]"

// sameFile compares two files, or the folders that they will be made in.
func sameFile(a, b string) (bool, error) {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	if os.IsNotExist(errA) && os.IsNotExist(errB) {
		infoA, errA = os.Stat(filepath.Dir(a))
		infoB, errB = os.Stat(filepath.Dir(b))
	}
	switch {
	case os.IsNotExist(errA) || os.IsNotExist(errB):
		return false, nil
	case errA != nil:
		return false, errA
	case errB != nil:
		return false, errB
	}
	return os.SameFile(infoA, infoB), nil
}

// mountOf gives the mount point that a path lies under. The fifth field of a
// mountinfo line is the mount point (Documentation/filesystems/proc.rst).
func mountOf(mounts io.Reader, path string) string {
	longest := ""
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		point := fields[4]
		below := point == "/" || path == point || strings.HasPrefix(path, point+"/")
		if below && len(point) >= len(longest) {
			longest = point
		}
	}
	return longest
}
