// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hierarchies are where the machine has its control groups: one hierarchy of version 2, or one per
// controller of version 1.
const hierarchies = "/sys/fs/cgroup"

// controlGroups are the node's own groups, one in each hierarchy.
type controlGroups []ownGroup

type ownGroup struct {
	dir  string
	home string // the group that this process came from
}

// groupPrefix and the process id are the name of a node's group.
const groupPrefix = "sluice-node-"

// unified reports whether the machine has version 2.
func unified() (bool, error) {
	var kind unix.Statfs_t
	if err := unix.Statfs(hierarchies, &kind); err != nil {
		return false, fmt.Errorf("control groups at %s: %w", hierarchies, err)
	}
	return kind.Type == unix.CGROUP2_SUPER_MAGIC, nil
}

// hierarchy is a line of /proc/self/cgroup.
type hierarchy struct {
	option string // that mounts it; empty for version 2
	dir    string // where it is below hierarchies
	own    string // the group of this process
}

// listHierarchies returns those with controllers.
func listHierarchies() ([]hierarchy, error) {
	version2, err := unified()
	if err != nil {
		return nil, err
	}
	lines, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	var all []hierarchy
	for line := range strings.Lines(string(lines)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // number:controllers:path
		if len(fields) != 3 || (fields[1] == "") != version2 {
			continue // beside version 1, the hierarchy of version 2 has no controllers
		}
		all = append(all, hierarchy{fields[1], strings.TrimPrefix(fields[1], "name="), fields[2]})
	}
	return all, nil
}

// joinControlGroups makes a group in each hierarchy and moves this process there. On an error, what
// it has made is in the result.
func joinControlGroups() (controlGroups, error) {
	var groups controlGroups
	all, err := listHierarchies()
	if err != nil {
		return nil, err
	}
	for _, h := range all {
		mount := filepath.Join(hierarchies, h.dir)
		home := filepath.Join(mount, h.own)
		if _, err := os.Stat(home); err != nil {
			home = mount // inside a container, whose own group is mounted there
		}
		parent := home
		if h.option == "" {
			// Only the root group may hold processes and have groups with controllers.
			parent = mount
			if err := enableControllers(parent); err != nil {
				return groups, err
			}
		}
		sweep(parent)
		group := ownGroup{filepath.Join(parent, groupPrefix+strconv.Itoa(os.Getpid())), home}
		if err := os.Mkdir(group.dir, 0o755); err != nil {
			return groups, fmt.Errorf("control group: %w", err)
		}
		groups = append(groups, group)
		if err := fillCPUSet(parent, group.dir); err != nil {
			return groups, err
		}
		if err := moveHere(group.dir); err != nil {
			return groups, err
		}
	}
	return groups, nil
}

// moveHere moves this process to a group.
func moveHere(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	return nil
}

// fillCPUSet fills a new group of version 1's controller cpuset, which takes no process before that.
func fillCPUSet(parent, dir string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		if _, err := os.Stat(filepath.Join(parent, "cpuset.sched_load_balance")); err != nil {
			return nil // another controller, or version 2
		}
		value, err := os.ReadFile(filepath.Join(parent, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), value, 0); err != nil {
			return err
		}
	}
	return nil
}

// enableMax bounds the wait for the processes of a group to leave it.
const enableMax = 10 * time.Second

// enableControllers gives the groups below one of version 2 each controller that it has. The kernel
// rejects that while the group itself holds processes, unless it is the root.
func enableControllers(dir string) error {
	names, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	for _, name := range strings.Fields(string(names)) {
		for deadline := time.Now().Add(enableMax); ; time.Sleep(10 * time.Millisecond) {
			err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+name), 0)
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
				return fmt.Errorf("control group: enable %s: %w", name, err)
			}
		}
	}
	return nil
}

// leave takes this process back to where it came from. Its children stay.
func (g controlGroups) leave() error {
	var errs []error
	for _, group := range g {
		errs = append(errs, moveHere(group.home))
	}
	return errors.Join(errs...)
}

// sweep removes the groups of nodes that were killed: their processes are gone, the groups stay.
func sweep(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, groupPrefix+"*")) // the pattern is valid
	for _, dir := range left {
		pid := strings.TrimPrefix(filepath.Base(dir), groupPrefix)
		if _, err := os.Stat("/proc/" + pid); errors.Is(err, fs.ErrNotExist) {
			_ = removeTree(dir, 0) // the next node tries again
		}
	}
}

// remove removes the groups with all below them.
func (g controlGroups) remove() error {
	errs := []error{g.leave()}
	for _, group := range g {
		errs = append(errs, removeTree(group.dir, removeMax))
	}
	return errors.Join(errs...)
}

// removeMax bounds the wait for a group to be empty: the kernel lets go of killed processes late.
const removeMax = 20 * time.Second

// removeTree removes a group and all below it, the deepest first.
func removeTree(dir string, limit time.Duration) error {
	var all []string
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			all = append(all, path)
		}
		return nil // what cannot be read cannot be removed, and is reported below
	})
	var errs []error
	for _, path := range slices.Backward(all) {
		errs = append(errs, removeGroup(path, limit))
	}
	return errors.Join(errs...)
}

func removeGroup(path string, limit time.Duration) error {
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		err := unix.Rmdir(path)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return fmt.Errorf("remove control group %s: %w", path, err)
		}
	}
}
