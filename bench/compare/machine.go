package main

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/bench/result"
)

// describe begins a result: the machine, the programs and the plan.
func describe(ctx context.Context, o options) (*result.Comparison, error) {
	out := &result.Comparison{
		Machine: result.Machine{
			Date: time.Now().UTC().Format("2006-01-02 15:04 UTC"), Kernel: strings.TrimSpace(read("/proc/sys/kernel/osrelease")),
			Processors: runtime.NumCPU(), Processor: field("/proc/cpuinfo", "model name"), MemoryMiB: memoryMiB(),
			LoadBefore: loadAverage(), Commit: said(ctx, "git", "describe", "--always", "--dirty"),
			Versions: map[string]string{
				"nft": said(ctx, "nft", "--version"), "iptables": said(ctx, "iptables", "--version"), "Go": runtime.Version(),
			},
		},
		Services: o.N, Mode: o.Mode, Variant: o.Variant, Minutes: o.Minutes, Rounds: o.Rounds, Steps: o.Steps,
		Mix: map[string]int{},
	}
	for _, it := range plan(o.N) {
		out.Mix[string(it.class)]++
		out.Endpoints += len(it.endpoints)
	}
	for name, binary := range map[string]string{result.Sluice: o.sluice, result.KubeProxy: o.kubeProxy} {
		printed, err := exec.CommandContext(ctx, binary, versionOf[name]...).Output()
		if err != nil {
			return nil, err
		}
		out.Machine.Versions[name] = strings.TrimSpace(string(printed))
	}
	return out, nil
}

var versionOf = map[string][]string{result.Sluice: {"version"}, result.KubeProxy: {"--version"}}

func read(path string) string {
	text, _ := os.ReadFile(path) // what cannot be read is empty on the page
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

func loadAverage() string {
	return strings.Join(strings.Fields(read("/proc/loadavg"))[:3], " ")
}

// said returns the first line that a command prints.
func said(ctx context.Context, name string, words ...string) string {
	printed, _ := exec.CommandContext(ctx, name, words...).Output()
	line, _, _ := strings.Cut(strings.TrimSpace(string(printed)), "\n")
	return line
}

func memoryMiB() int {
	value := strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB")
	size, _ := strconv.Atoi(value)
	return size / 1024
}
