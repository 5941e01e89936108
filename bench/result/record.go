package result

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Record is a file of bench/results: what one measurement printed, and where and when that was.
type Record struct {
	// Kind is the measurement: the name of its folder.
	Kind string
	// Command is what to type to repeat it.
	Command string
	Machine Machine
	// Data is what the measurement prints in JSON.
	Data json.RawMessage
}

// Machine is where and when, and with what.
type Machine struct {
	Date, Kernel, Processor string
	Processors, MemoryMiB   int
	// LoadBefore and LoadAfter are load averages.
	LoadBefore string
	LoadAfter  string `json:",omitempty"`
	Commit     string
	// Versions are what the programs say of themselves.
	Versions map[string]string
}

// Write stores a record.
func (r *Record) Write(file string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// ReadRecord reads a file that Write has written.
func ReadRecord(file string) (*Record, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &Record{}
	return r, json.Unmarshal(text, r)
}

// ThisMachine describes the machine now. What it cannot find out is empty.
func ThisMachine(ctx context.Context) Machine {
	return Machine{
		Date: time.Now().UTC().Format("2006-01-02 15:04 UTC"), Kernel: strings.TrimSpace(read("/proc/sys/kernel/osrelease")),
		Processors: runtime.NumCPU(), Processor: field("/proc/cpuinfo", "model name"), MemoryMiB: memoryMiB(),
		LoadBefore: LoadAverage(), Commit: said(ctx, "git", "describe", "--tags", "--always", "--dirty"),
		Versions: map[string]string{
			"nft": said(ctx, "nft", "--version"), "iptables": said(ctx, "iptables", "--version"), "Go": runtime.Version(),
		},
	}
}

// LoadAverage returns the three averages.
func LoadAverage() string {
	fields := strings.Fields(read("/proc/loadavg"))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

func read(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}

// field returns the first value of a key in a file of /proc.
func field(path, key string) string {
	for line := range strings.Lines(read(path)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func memoryMiB() int {
	size, _ := strconv.Atoi(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"))
	return size / 1024
}

// said returns the first line that a command prints.
func said(ctx context.Context, name string, words ...string) string {
	printed, _ := exec.CommandContext(ctx, name, words...).Output()
	line, _, _ := strings.Cut(strings.TrimSpace(string(printed)), "\n")
	return line
}
