// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ownFolders are the node's own, in memory. Everything else it sees is the machine's.
var ownFolders = []string{"/run", "/var/lib", "/var/log"}

// tunables are kernel parameters of the whole machine that a kubelet sets, with the values that it
// wants. In the node's view each is a separate file.
var tunables = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// safe are the options of file systems without programs.
const safe = unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_NODEV

// mountAll gives this process, the first of its namespaces, the node's view of the file system.
func mountAll() error {
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	groups, err := listHierarchies()
	if err != nil {
		return err
	}
	errs := []error{
		mount("proc", "/proc", "proc", safe, ""),
		mount("sysfs", "/sys", "sysfs", safe, ""),
		mountControlGroups(groups),
	}
	for _, dir := range ownFolders {
		errs = append(errs, mount("tmpfs", dir, "tmpfs", 0, "mode=755"))
	}
	errs = append(errs, hideTunables(), mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""))
	return errors.Join(errs...)
}

func mount(source, target, kind string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s at %s: %w", kind, target, err)
	}
	return nil
}

// mountControlGroups mounts the hierarchies, of which this namespace sees its own group only.
func mountControlGroups(all []hierarchy) error {
	if len(all) == 1 && all[0].option == "" {
		if err := mount("cgroup2", hierarchies, "cgroup2", safe, ""); err != nil {
			return err
		}
		first := filepath.Join(hierarchies, "init")
		if err := os.Mkdir(first, 0o755); err != nil {
			return err
		}
		if err := moveHere(first); err != nil {
			return err
		}
		return enableControllers(hierarchies)
	}
	errs := []error{mount("tmpfs", hierarchies, "tmpfs", safe, "mode=755")}
	for _, h := range all {
		dir := filepath.Join(hierarchies, h.dir)
		errs = append(errs, os.Mkdir(dir, 0o755), mount("cgroup", dir, "cgroup", safe, h.option))
	}
	return errors.Join(errs...)
}

func hideTunables() error {
	for name, value := range tunables {
		file := filepath.Join(stateDir, "tunables", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := mount(file, filepath.Join("/proc/sys", name), "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}
