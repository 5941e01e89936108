package main

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
)

// processorTime is what a process and its children have used, in seconds.
type processorTime struct{ user, system float64 }

func (t processorTime) minus(other processorTime) processorTime {
	return processorTime{t.user - other.user, t.system - other.system}
}

func (t processorTime) sum() float64 { return t.user + t.system }

// ticks are the kernel's units in /proc/PID/stat, USER_HZ, the same on every machine.
const ticks = 100

// usedBy reads what a process has used, with its children: those that have ended and those that run.
func usedBy(pid int) (sum processorTime, err error) {
	for i, p := range withChildren(pid) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
		if err != nil && i > 0 {
			continue // it has ended meanwhile
		}
		if err != nil {
			return sum, err
		}
		t, err := parseStat(text)
		if err != nil {
			return sum, err
		}
		sum.user, sum.system = sum.user+t.user, sum.system+t.system
	}
	return sum, nil
}

// parseStat reads the fields utime, stime, cutime and cstime of proc_pid_stat(5): the process, and its
// children that have ended.
func parseStat(text []byte) (t processorTime, err error) {
	// The name, in parentheses, may hold anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const utime = 14 - 3 // the first field after the name is number 3
	if len(fields) < utime+4 {
		return t, fmt.Errorf("/proc/PID/stat: %q has too few fields", text)
	}
	var values [4]float64
	for i := range values {
		if values[i], err = strconv.ParseFloat(fields[utime+i], 64); err != nil {
			return t, fmt.Errorf("/proc/PID/stat: %w", err)
		}
	}
	return processorTime{(values[0] + values[2]) / ticks, (values[1] + values[3]) / ticks}, nil
}

// residentKiB reads the resident size of one process; 0 when it has ended.
func residentKiB(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "VmRSS:"); found {
			size, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			return size
		}
	}
	return 0
}

func residentMiB(pid int) float64 { return float64(residentKiB(pid)) / 1024 }

// withChildren returns a process and everything it has started.
func withChildren(pid int) []int {
	all := []int{pid}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, child := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(child); err == nil {
				all = append(all, withChildren(n)...)
			}
		}
	}
	return all
}

func withChildrenKiB(pid int) (sum int) {
	for _, p := range withChildren(pid) {
		sum += residentKiB(p)
	}
	return sum
}

// memoryWatch follows the resident size of a process with its children.
type memoryWatch struct {
	mu   sync.Mutex
	peak int
	stop context.CancelFunc
	done sync.WaitGroup
}

func watchMemory(pid int) *memoryWatch {
	ctx, cancel := context.WithCancel(context.Background())
	w := &memoryWatch{stop: cancel}
	w.done.Go(func() {
		for ctx.Err() == nil {
			size := withChildrenKiB(pid)
			w.mu.Lock()
			w.peak = max(w.peak, size)
			w.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return w
}

// take returns the peak since the last call, in MiB.
func (w *memoryWatch) take() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	peak := w.peak
	w.peak = 0
	return float64(peak) / 1024
}

func (w *memoryWatch) close() {
	w.stop()
	w.done.Wait()
}
