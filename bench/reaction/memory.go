package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// memory is what a process holds after a cold start, in MiB.
type memory struct {
	// Peak is the largest resident size so far; Resident the present one, some
	// seconds after the start, with nothing done to make it smaller.
	Peak, Resident float64
	// Heap and Stacks are in use at that time, by Go's account.
	Heap, Stacks float64
	// Least is the resident size after collecting and giving back all that can
	// be, with LeastHeap and LeastStacks in use.
	Least, LeastHeap, LeastStacks float64
	// PerServiceKiB is LeastHeap and LeastStacks shared among the Services.
	PerServiceKiB float64
}

// settling is how long a process is left alone before its memory is taken.
const settling = 5 * time.Second

// takeMemory takes the memory of this process.
func takeMemory(services int) memory {
	time.Sleep(settling)
	var at runtime.MemStats
	runtime.ReadMemStats(&at)
	m := memory{
		Peak: statusMiB("VmHWM:"), Resident: statusMiB("VmRSS:"),
		Heap: mib(at.HeapInuse), Stacks: mib(at.StackInuse),
	}
	for range 4 { // stacks shrink by half at each collection
		runtime.GC()
	}
	debug.FreeOSMemory()
	runtime.ReadMemStats(&at)
	m.Least, m.LeastHeap, m.LeastStacks = statusMiB("VmRSS:"), mib(at.HeapAlloc), mib(at.StackInuse)
	m.PerServiceKiB = (m.LeastHeap + m.LeastStacks) * 1024 / float64(services)
	return m
}

func mib(bytes uint64) float64 { return float64(bytes) / (1 << 20) }

// statusMiB reads a line of proc_pid_status(5), 0 when there is none.
func statusMiB(name string) float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib / 1024
		}
	}
	return 0
}

// processorTime is what this process has used, by user and kernel (getrusage(2)).
func processorTime() time.Duration {
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
