// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/test/process"
)

// stateDir returns the directory of the proxy's records and of its socket. During faults, it is a
// small separate file system.
func (o *options) stateDir() string { return filepath.Join(o.dir, "state") }

func (o *options) mountState() error {
	if err := os.MkdirAll(o.stateDir(), 0o700); err != nil {
		return err
	}
	if err := unix.Mount("campaign", o.stateDir(), "tmpfs", 0, "size=64k,nr_inodes=64,mode=0700"); err != nil {
		return fmt.Errorf("mount %s: %w", o.stateDir(), err)
	}
	return nil
}

func (o *options) unmountState() error {
	// The proxy may hold a file in it.
	return os.NewSyscallError("unmount", unix.Unmount(o.stateDir(), unix.MNT_DETACH))
}

// disk makes the state directory full or read-only, while the proxy runs or before it starts.
// Afterwards the proxy must answer questions at its socket again.
func disk(ctx context.Context, r *trial, number int) error {
	full, atStart := number%2 == 0, number/2%2 == 0
	what := map[bool]string{true: "full", false: "read-only"}[full]
	if atStart {
		what += ", at the start"
		if err := r.p.end((*process.Daemon).Kill); err != nil {
			return err
		}
		if err := r.emptyState(ctx); err != nil {
			return err
		}
	} else {
		what += ", while it runs"
	}
	r.row.count(what)
	heal, err := r.spoilState(full)
	if err != nil {
		return err
	}
	from, want := time.Now(), r.c.mark()
	if atStart {
		if err := r.p.start(); err != nil {
			return err
		}
	}
	if err := r.recovered(ctx, from, want, atStart); err != nil {
		return errors.Join(err, heal())
	}
	time.Sleep(time.Second)
	if atStart {
		if err := r.said(ctx, "cannot serve the inspection socket; retrying"); err != nil {
			return errors.Join(err, fmt.Errorf("the state directory has %q", r.stateFiles()), heal())
		}
	}
	if err := heal(); err != nil {
		return err
	}
	return r.answersQuestions(ctx)
}

func (o *options) stateFiles() []string {
	files, _ := filepath.Glob(filepath.Join(o.stateDir(), "*")) // the pattern is well-formed
	return files
}

// emptyState makes the directory what it is after a boot. It waits until no removed file is held by a process, such as a
// child that the killed proxy was starting: its inode would become free later, and the directory would not be full.
func (r *trial) emptyState(ctx context.Context) error {
	for _, file := range r.stateFiles() {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, r.recovery)
	defer cancel()
	for {
		var state unix.Statfs_t
		if err := unix.Statfs(r.stateDir(), &state); err != nil {
			return os.NewSyscallError("statfs", err)
		}
		if held := state.Files - state.Ffree - 1; held == 0 { // the directory has one itself
			return nil
		} else if ctx.Err() != nil {
			return fmt.Errorf("%d removed files in %s are still held", held, r.stateDir())
		}
		time.Sleep(time.Millisecond)
	}
}

// spoilState makes the directory full, in bytes and in files, or read-only.
func (o *options) spoilState(full bool) (heal func() error, err error) {
	if !full {
		remount := func(flags uintptr) error {
			return os.NewSyscallError("remount", unix.Mount("", o.stateDir(), "", unix.MS_REMOUNT|flags, ""))
		}
		return func() error { return remount(0) }, remount(unix.MS_RDONLY)
	}
	var ballast []string
	heal = func() (err error) {
		for _, file := range ballast {
			err = errors.Join(err, os.Remove(file))
		}
		return err
	}
	for {
		file := filepath.Join(o.stateDir(), fmt.Sprintf("ballast-%d", len(ballast)))
		err := os.WriteFile(file, make([]byte, 16<<10), 0o600)
		if err == nil {
			ballast = append(ballast, file)
			continue
		}
		if !errors.Is(err, unix.ENOSPC) {
			return heal, errors.Join(err, heal())
		}
		// A part of the file may have been written, and an empty file needs no space.
		if _, made := os.Stat(file); made != nil {
			return heal, nil
		}
		ballast = append(ballast, file)
	}
}

// answersQuestions waits until the proxy answers at its socket.
func (r *trial) answersQuestions(ctx context.Context) error {
	const interval = 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, r.recovery)
	defer cancel()
	for {
		ask := exec.CommandContext(ctx, r.p.builds[r.p.current].binary, "status", "--socket", filepath.Join(r.stateDir(), "sluice.sock"))
		printed, err := ask.CombinedOutput()
		// Status 1 says that something is wrong: the rejected Service is.
		if exit, ok := errors.AsType[*exec.ExitError](err); err == nil || ok && exit.ExitCode() == 1 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the proxy answers no questions: %w: %s", err, printed)
		case <-time.After(interval):
		}
	}
}
