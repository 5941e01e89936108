// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Origin describes where the tables of this process come from: the command, the time, the commit, the load average, the
// machine and the versions of other programs. A page that quotes a table quotes it, too.
func Origin(ctx context.Context, programs ...string) (string, error) {
	command := "./" + filepath.Base(os.Args[0])
	for _, word := range os.Args[1:] {
		if word == "" || strings.ContainsRune(word, ' ') {
			word = "'" + word + "'"
		}
		command += " " + word
	}
	commit, err := printed(ctx, "git", "describe", "--tags", "--always", "--dirty")
	if err != nil {
		commit = "unknown"
	}
	text := fmt.Sprintf("`cd bench && go run %s`, %s, commit %s, load average %s; Linux %s, %d × %s, %d MiB, %s",
		command, time.Now().UTC().Format("2006-01-02 15:04 UTC"), commit, LoadAverage(),
		strings.TrimSpace(read("/proc/sys/kernel/osrelease")), runtime.NumCPU(), line("/proc/cpuinfo", "model name"),
		KiB("/proc/meminfo", "MemTotal")/1024, runtime.Version())
	for _, program := range programs {
		version, err := printed(ctx, program, "--version")
		if err != nil {
			return "", fmt.Errorf("%s --version: %w", program, err)
		}
		text += "; " + filepath.Base(program) + ": " + version
	}
	return text, nil
}

// LoadAverage returns the three averages.
func LoadAverage() string {
	fields := strings.Fields(read("/proc/loadavg"))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

// printed returns the first line that a command prints.
func printed(ctx context.Context, name string, words ...string) (string, error) {
	text, err := exec.CommandContext(ctx, name, words...).Output()
	first, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return first, err
}
