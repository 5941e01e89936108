// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/test/process"
)

// memoryGroup is a control group of our own with a limit of memory.
type memoryGroup struct {
	dir string
	// limit, usage and events are names of files, which differ between the two versions.
	limit, usage, events, inactive string
	working                        int
}

// newMemoryGroup makes a group below the one of this process. In version 2 a group with processes
// has no children with limits, so there it is a sibling, or where the first ancestor has such.
func newMemoryGroup() (*memoryGroup, error) {
	lines, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("sluice-campaign-%d", os.Getpid())
	for line := range strings.Lines(string(lines)) {
		if _, path, ok := strings.Cut(strings.TrimSpace(line), ":memory:"); ok {
			g := &memoryGroup{
				limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes", events: "memory.oom_control", inactive: "total_inactive_file",
				dir: filepath.Join("/sys/fs/cgroup/memory", path, name),
			}
			return g, os.Mkdir(g.dir, 0o755)
		}
	}
	_, path, _ := strings.Cut(strings.TrimSpace(string(lines)), "0::")
	for {
		control, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", path, "cgroup.subtree_control"))
		if err == nil && bytes.Contains(control, []byte("memory")) {
			g := &memoryGroup{
				limit: "memory.max", usage: "memory.current", events: "memory.events", inactive: "inactive_file",
				dir: filepath.Join("/sys/fs/cgroup", path, name),
			}
			return g, os.Mkdir(g.dir, 0o755)
		}
		if path == "/" || path == "." {
			return nil, errors.New("no control group limits memory here")
		}
		path = filepath.Dir(path)
	}
}

// number returns the number after a word in a file of the group, or the whole content for "".
func (g *memoryGroup) number(file, word string) (int, error) {
	content, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), word+" "); ok || word == "" {
			if word == "" {
				text = lines.Text()
			}
			return strconv.Atoi(text)
		}
	}
	return 0, fmt.Errorf("%s has no %q", file, word)
}

// workingSet is what is in use and cannot be dropped, as kubelet computes it.
func (g *memoryGroup) workingSet() (int, error) {
	used, err := g.number(g.usage, "")
	inactive, other := g.number("memory.stat", g.inactive)
	return used - inactive, errors.Join(err, other)
}

func (g *memoryGroup) kills() (int, error) { return g.number(g.events, "oom_kill") }

// limitMemory measures the working set of a proxy under churn, and limits those that follow to
// 1.2 times as much.
func limitMemory(ctx context.Context, r *trial) error {
	const bursts = 6
	group, err := newMemoryGroup()
	if err != nil {
		return err
	}
	r.group = group
	r.p.Under = []string{"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, group.dir}
	if err := r.restart(ctx); err != nil {
		return err
	}
	for range bursts {
		r.burst(r.c.services)
		time.Sleep(time.Second)
		now, err := group.workingSet()
		if err != nil {
			return err
		}
		group.working = max(group.working, now)
	}
	limit := group.working * 6 / 5
	r.row.note("working set %.1f MiB under churn, limit %.1f MiB", mib(group.working), mib(limit))
	if err := r.p.end((*process.Daemon).Kill); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(group.dir, group.limit), []byte(strconv.Itoa(limit)), 0); err != nil {
		return err
	}
	if err := r.p.start(); err != nil {
		return err
	}
	return r.recovered(ctx, time.Now(), r.c.mark(), true)
}

func mib(bytes int) float64 { return float64(bytes) / (1 << 20) }

// memory restarts the proxy under the limit, and has bursts of changes brought into force. If the
// kernel kills it, it starts again.
func memory(ctx context.Context, r *trial, _ int) error {
	if err := r.p.end((*process.Daemon).Kill); err != nil {
		return err
	}
	for began := time.Now(); ; {
		before, err := r.group.kills()
		if err != nil {
			return err
		}
		err = r.underLimit(ctx)
		after, other := r.group.kills()
		if other != nil {
			return other
		}
		if after == before {
			r.row.count("not killed")
			return err
		}
		r.row.count("killed by the kernel")
		if time.Since(began) > r.recovery {
			return fmt.Errorf("the limit of memory does not let the proxy live: %w", err)
		}
	}
}

func (r *trial) underLimit(ctx context.Context) error {
	want, from := r.c.mark(), time.Now()
	if err := r.p.start(); err != nil {
		return err
	}
	if err := r.recovered(ctx, from, want, true); err != nil {
		return err
	}
	for range 3 {
		r.burst(r.c.services)
		time.Sleep(500 * time.Millisecond)
		if err := r.recovered(ctx, time.Now(), r.c.mark(), false); err != nil {
			return err
		}
	}
	return r.p.Alive()
}

// freeMemory lifts the limit and removes the group.
func (r *trial) freeMemory() error {
	if r.group == nil {
		return nil
	}
	r.p.Under = nil
	if err := r.p.end((*process.Daemon).Kill); err != nil {
		return err
	}
	if err := os.Remove(r.group.dir); err != nil {
		return err
	}
	if err := r.p.start(); err != nil {
		return err
	}
	return r.recovered(context.Background(), time.Now(), r.c.mark(), true)
}
