package daemon

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// garbagePercent is how much garbage may gather before it is collected, in percent of what
// lives. Go's default is 100. A proxy allocates little but for its start, so collecting
// twice as often costs a few milliseconds of processor time per second at 100 changes per
// second, and saves a quarter of the memory (ADR 34).
const garbagePercent = 50

// limitGarbage sets garbagePercent, and a limit near which garbage is collected more often than
// that, unless the environment says otherwise.
func limitGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		if limit, ok := groupLimit("/"); ok {
			debug.SetMemoryLimit(heapLimit(limit))
		}
	}
}

// heapLimit is what Go may use of a control group's memory. The rest is for what Go does not count:
// the program's pages, the kernel's memory for rules and sockets, and the iptables programs.
func heapLimit(group int64) int64 { return group / 10 * 8 }

// groupLimit returns the limit of memory of the control groups that this process is in. It reads
// the files below a root, "/" but for tests.
func groupLimit(root string) (limit int64, ok bool) {
	lines, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return 0, false
	}
	limit = math.MaxInt64
	for line := range strings.Lines(string(lines)) {
		// Each line is "number:controllers:path"; version 2 has number 0 and no controllers.
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(fields) < 3:
		case fields[0] == "0" && fields[1] == "":
			limit = min(limit, lowest(filepath.Join(root, "sys/fs/cgroup"), fields[2], "memory.max"))
		case fields[1] == "memory":
			limit = min(limit, lowest(filepath.Join(root, "sys/fs/cgroup/memory"), fields[2], "memory.limit_in_bytes"))
		}
	}
	// Without a limit, version 1 has a number near the largest.
	return limit, limit < 1<<60
}

// lowest returns the lowest limit of a group and of those above it. In a container, the path may
// name groups that are not visible there; the container's own is then at the mount.
func lowest(mount, path, file string) int64 {
	limit := int64(math.MaxInt64)
	for ; ; path = filepath.Dir(path) {
		text, err := os.ReadFile(filepath.Join(mount, path, file))
		if err == nil {
			if own, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil { // not "max"
				limit = min(limit, own)
			}
		}
		if path == "/" || path == "." {
			return limit
		}
	}
}
