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

// hierarchies are where the machine has its control groups, version 1.
const hierarchies = "/sys/fs/cgroup"

// controlGroup is the node's own group in each hierarchy, by the names of its controllers.
type controlGroup map[string]string

// groupPrefix and the process id are the name of a node's group.
const groupPrefix = "sluice-node-"

// joinControlGroup makes a group in each hierarchy, below that of this process, and moves this
// process there. On an error, what it has made is in the result.
func joinControlGroup() (controlGroup, error) {
	group := controlGroup{}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return group, err
	}
	for line := range strings.Lines(string(own)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // number:controllers:path
		if len(fields) != 3 || fields[1] == "" {
			continue // version 2, whose hierarchy has no controllers here
		}
		controllers := strings.TrimPrefix(fields[1], "name=")
		mount := filepath.Join(hierarchies, controllers)
		parent := filepath.Join(mount, fields[2])
		if _, err := os.Stat(parent); err != nil {
			parent = mount // inside a container, whose own group is mounted there
		}
		sweep(parent)
		dir := filepath.Join(parent, groupPrefix+strconv.Itoa(os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return group, fmt.Errorf("control group: %w", err)
		}
		group[fields[1]] = dir
		if err := joinOne(parent, dir); err != nil {
			return group, fmt.Errorf("control group: %w", err)
		}
	}
	if len(group) == 0 {
		return group, errors.New("this machine has no control groups of version 1, and a node here knows no others")
	}
	return group, nil
}

func joinOne(parent, dir string) error {
	// A new group of the controller cpuset is empty, and takes no process before it is filled.
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), value, 0); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0)
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

// remove takes this process back to the parents and removes the groups with all below them.
func (g controlGroup) remove() error {
	var errs []error
	for _, dir := range g {
		errs = append(errs,
			os.WriteFile(filepath.Join(filepath.Dir(dir), "cgroup.procs"), []byte("0"), 0),
			removeTree(dir, removeMax))
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
