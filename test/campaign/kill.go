// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/test/process"
)

// aim waits for the instant of a kill, and says where it fell.
type aim struct {
	name   string
	weight int
	// starting says that the proxy is not to be ready before.
	starting bool
	wait     func(*trial) (string, error)
}

// aims are where kills fall. Changes go on all the time, so each may fall into a write as well.
var aims = []aim{
	{"while it starts", 6, true, func(r *trial) (string, error) {
		time.Sleep(rand.N(r.startup + r.startup/3 + time.Millisecond))
		return r.p.startPhase()
	}},
	{"after a burst of changes", 4, false, func(r *trial) (string, error) {
		r.burst(r.c.services)
		time.Sleep(rand.N(r.latency()))
		return "", nil
	}},
	{"when a write was seen", 4, false, (*trial).seen},
	{"during an audit", 2, false, func(r *trial) (string, error) {
		if err := r.rival().touch(); err != nil {
			return "", err
		}
		within := r.latency()
		if r.variant == "legacy" {
			within += time.Second // until the next look at the table's size
		}
		time.Sleep(rand.N(within))
		return "", nil
	}},
	{"during the clean-up of flows", 2, false, func(r *trial) (string, error) {
		r.c.setEndpoints(r.c.roles().flows, rand.IntN(podsPerService))
		time.Sleep(rand.N(r.latency()))
		return "", nil
	}},
	{"during the bisection", 3, false, func(r *trial) (string, error) {
		r.c.setEndpoints(rejectedNumber, rand.IntN(podsPerService))
		r.burst(r.c.services / 4)
		time.Sleep(rand.N(2 * r.latency()))
		return "", nil
	}},
	{"at any time", 3, false, func(*trial) (string, error) { time.Sleep(rand.N(time.Second)); return "", nil }},
}

// killed is what came before a start.
type killed struct {
	at    time.Time
	shown string
}

// kill kills the proxy at an instant, changes something, and starts it again immediately or after a
// pause. The next instant waits for the recovery, unless it falls into the start.
func kill(ctx context.Context, r *trial, _ int) error {
	a := pick(r.mode)
	if !a.starting {
		if err := r.revived(ctx); err != nil {
			return err
		}
	}
	where, err := a.wait(r)
	if err != nil {
		return err
	}
	if err := r.p.Alive(); err != nil {
		return err
	}
	if err := r.p.end((*process.Daemon).Kill); err != nil {
		return err
	}
	where = strings.TrimSuffix(a.name+": "+where, ": ")
	r.row.count(where)
	if r.recorder != nil {
		if err := r.recorder.instant(fmt.Sprintf("%d: killed %d %s", r.row.instants, r.p.Starts(), where)); err != nil {
			return err
		}
	}
	r.killed.shown = r.c.mark()
	if rand.IntN(2) == 0 {
		time.Sleep(rand.N(time.Second))
	}
	r.killed.at = time.Now()
	return r.p.start()
}

// revived waits for the recovery after a kill.
func (r *trial) revived(ctx context.Context) error {
	if r.killed.at.IsZero() {
		return nil
	}
	from := r.killed
	r.killed = killed{}
	return r.recovered(ctx, from.at, from.shown, true)
}

// revive does that after the last one.
func (r *trial) revive() error { return r.revived(context.Background()) }

// pick returns a random aim that exists for a backend.
func pick(mode string) aim {
	var all []aim
	for _, a := range aims {
		if mode == "ipvs" && (strings.Contains(a.name, "audit") || strings.Contains(a.name, "culprit")) {
			continue // no rival's edit and no rejected Service there
		}
		all = append(all, slices.Repeat([]aim{a}, a.weight)...)
	}
	return all[rand.IntN(len(all))]
}

// burst changes so many Services together.
func (r *trial) burst(services int) {
	for range services {
		r.c.change()
	}
}

// latency is about how long a burst takes to be applied.
func (r *trial) latency() time.Duration { return max(50*time.Millisecond, r.startup/2) }

// seen waits until the proxy is inside a write to the kernel, after bursts.
func (r *trial) seen() (string, error) {
	const limit = 500 * time.Millisecond
	for began := time.Now(); time.Since(began) < limit; {
		r.burst(r.c.services / 4)
		for since := time.Now(); time.Since(since) < r.latency(); {
			if r.p.writes() {
				return "inside it", nil
			}
		}
	}
	return "none seen", nil
}

// ready reports whether the proxy has compared the kernel's rules with the API in both families.
func (p *proxies) ready() (bool, error) {
	if err := p.Alive(); err != nil {
		return false, err
	}
	log, err := os.ReadFile(p.Process().LogFile())
	return bytes.Count(log, []byte(`"audit done"`)) >= 2, err
}

// startPhase says how far a start has come.
func (p *proxies) startPhase() (string, error) {
	log, err := os.ReadFile(p.Process().LogFile())
	if err != nil {
		return "", err
	}
	read, written := bytes.Count(log, []byte(`"audit done"`)), bytes.Count(log, []byte(`"batch written"`))
	switch {
	case !bytes.Contains(log, []byte(`"started"`)):
		return "before it serves", nil
	case !bytes.Contains(log, []byte(`"startup gate opened; starting first write"`)):
		return "before it reads the kernel, or meanwhile", nil
	case read < 2:
		return "while it reads the kernel", nil
	case written < 2:
		return "during the first write", nil
	}
	return "after the first write", nil
}

// writes reports whether the proxy is in the middle of a write: a thread is in the kernel with a
// message of netlink, or a program that restores rules runs.
func (p *proxies) writes() bool {
	tasks := fmt.Sprintf("/proc/%d/task", p.Process().PID())
	threads, _ := os.ReadDir(tasks) // none when it has ended
	for _, thread := range threads {
		stack, _ := os.ReadFile(filepath.Join(tasks, thread.Name(), "stack"))
		for _, function := range []string{"nfnetlink_rcv_batch", "nf_tables_", "ip_vs_genl_set_cmd"} {
			if bytes.Contains(stack, []byte(function)) {
				return true
			}
		}
		children, _ := os.ReadFile(filepath.Join(tasks, thread.Name(), "children"))
		for child := range bytes.FieldsSeq(children) {
			name, _ := os.ReadFile(filepath.Join("/proc", string(child), "cmdline"))
			if bytes.Contains(name, []byte("-restore")) {
				return true
			}
		}
	}
	return false
}
