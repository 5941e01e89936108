// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

func read(path string) string {
	text, _ := os.ReadFile(path) // a missing file is empty
	return string(text)
}

// line returns the first value of a key in a file of /proc, without spaces around it.
func line(path, key string) string {
	for line := range strings.Lines(read(path)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// KiB returns a size in a file of /proc, and 0 if there is none.
func KiB(path, key string) int {
	size, _ := strconv.Atoi(strings.TrimSuffix(line(path, key), " kB"))
	return size
}

// MiB returns a size of a process (proc_pid_status(5)), and 0 if the process has ended.
func MiB(pid int, key string) float64 {
	return float64(KiB(fmt.Sprintf("/proc/%d/status", pid), key)) / 1024
}

// Resident is the key of the resident size, Peak that of its maximum.
const Resident, Peak = "VmRSS", "VmHWM"

// CPU is CPU time.
type CPU struct{ User, System time.Duration }

// Minus returns the difference of two times.
func (c CPU) Minus(other CPU) CPU { return CPU{c.User - other.User, c.System - other.System} }

// Sum returns the time in user mode and in the kernel.
func (c CPU) Sum() time.Duration { return c.User + c.System }

// tick is the unit of CPU time in /proc, USER_HZ, the same on every machine.
const tick = time.Second / 100

// Used returns the CPU time of a process with its children, both running and ended.
func Used(pid int) (sum CPU, err error) {
	for i, p := range WithChildren(pid) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
		if err != nil && i > 0 {
			continue // it has ended
		}
		if err != nil {
			return sum, err
		}
		c, err := parseStat(text)
		if err != nil {
			return sum, err
		}
		sum.User, sum.System = sum.User+c.User, sum.System+c.System
	}
	return sum, nil
}

// parseStat reads the fields utime, stime, cutime and cstime of proc_pid_stat(5).
func parseStat(text []byte) (c CPU, err error) {
	// The name, in parentheses, may contain anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const utime = 14 - 3 // the first field after the name is number 3
	if len(fields) < utime+4 {
		return c, fmt.Errorf("/proc/PID/stat: %q has too few fields", text)
	}
	var ticks [4]time.Duration
	for i := range ticks {
		n, err := strconv.ParseInt(fields[utime+i], 10, 64)
		if err != nil {
			return c, fmt.Errorf("/proc/PID/stat: %w", err)
		}
		ticks[i] = time.Duration(n) * tick
	}
	return CPU{ticks[0] + ticks[2], ticks[1] + ticks[3]}, nil
}

// UsedHere returns the CPU time of this process, or of its ended children (getrusage(2)), which is more precise.
func UsedHere(who int) CPU {
	var used unix.Rusage
	if unix.Getrusage(who, &used) != nil {
		return CPU{}
	}
	return CPU{time.Duration(used.Utime.Nano()), time.Duration(used.Stime.Nano())}
}

// WithChildren returns a process and everything that it started.
func WithChildren(pid int) []int {
	all := []int{pid}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		for child := range strings.FieldsSeq(read(file)) {
			if n, err := strconv.Atoi(child); err == nil {
				all = append(all, WithChildren(n)...)
			}
		}
	}
	return all
}

// MemoryWatch follows the resident size of a process with its children.
type MemoryWatch struct {
	mu   sync.Mutex
	peak float64
	stop context.CancelFunc
	done sync.WaitGroup
}

// WatchMemory starts to follow a process.
func WatchMemory(pid int) *MemoryWatch {
	ctx, cancel := context.WithCancel(context.Background())
	w := &MemoryWatch{stop: cancel}
	w.done.Go(func() {
		for ok := true; ok; ok = Sleep(ctx, 100*time.Millisecond) {
			size := 0.0
			for _, p := range WithChildren(pid) {
				size += MiB(p, Resident)
			}
			w.mu.Lock()
			w.peak = max(w.peak, size)
			w.mu.Unlock()
		}
	})
	return w
}

// Take returns the peak since the last call, in MiB.
func (w *MemoryWatch) Take() (peak float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	peak, w.peak = w.peak, 0
	return peak
}

// Close ends the watch.
func (w *MemoryWatch) Close() {
	w.stop()
	w.done.Wait()
}
