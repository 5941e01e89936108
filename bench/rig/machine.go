package rig

import (
	"context"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Machine describes where, when and with which versions a measurement ran.
type Machine struct {
	Date, Kernel, Processor string
	Processors, MemoryMiB   int
	// LoadBefore and LoadAfter are load averages.
	LoadBefore string
	LoadAfter  string `json:",omitempty"`
	Commit     string
	// Versions are the versions that programs print.
	Versions map[string]string
}

// ThisMachine describes the machine now. Unknown values are empty.
func ThisMachine(ctx context.Context) Machine {
	return Machine{
		Date: time.Now().UTC().Format("2006-01-02 15:04 UTC"), Kernel: strings.TrimSpace(read("/proc/sys/kernel/osrelease")),
		Processors: runtime.NumCPU(), Processor: line("/proc/cpuinfo", "model name"), MemoryMiB: KiB("/proc/meminfo", "MemTotal") / 1024,
		LoadBefore: LoadAverage(), Commit: printed(ctx, "git", "describe", "--tags", "--always", "--dirty"),
		Versions: map[string]string{
			"nft": printed(ctx, "nft", "--version"), "iptables": printed(ctx, "iptables", "--version"), "Go": runtime.Version(),
		},
	}
}

// LoadAverage returns the three averages.
func LoadAverage() string {
	fields := strings.Fields(read("/proc/loadavg"))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

// printed returns the first line that a command prints.
func printed(ctx context.Context, name string, words ...string) string {
	text, _ := exec.CommandContext(ctx, name, words...).Output()
	first, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return first
}
