// SPDX-License-Identifier: Apache-2.0

// Package process runs a program on a host of a network, above all the proxy, one process after the other, each with a
// separate log, and mounts its configuration file ([ConfigMap]).
package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// errNotStarted is returned by what needs a process when none was started.
var errNotStarted = errors.New("the program was not started")

// Program is a program that runs at most once at a time. One goroutine uses it.
type Program struct {
	// Namespace is that of the host where it runs.
	Namespace *netns.Namespace
	// Binary is its file.
	Binary string
	// Under is the command line of another program that becomes this one, whose command line follows.
	Under []string
	// Environment holds NAME=VALUE pairs that override those of this process.
	Environment []string
	// Dir gets the logs. Their names are the program's name, or else that of its file, and a number.
	Dir, Name string

	starts  int
	process *Daemon
}

// Command prepares a run of the program in the same way, for a command that ends by itself.
func (p *Program) Command(args ...string) *exec.Cmd {
	words := append(append(slices.Clone(p.Under), p.Binary), args...)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), p.Environment...)
	return cmd
}

// Start starts the next process and returns once it runs.
func (p *Program) Start(args ...string) error {
	p.starts++
	log := filepath.Join(p.Dir, fmt.Sprintf("%s-%d.log", cmp.Or(p.Name, filepath.Base(p.Binary)), p.starts))
	process, err := StartDaemon(p.Namespace, log, p.Command(args...))
	if err == nil {
		p.process = process
	}
	return err
}

// Process returns the process that was started last, or nil.
func (p *Program) Process() *Daemon { return p.process }

// Starts returns how many processes were started.
func (p *Program) Starts() int { return p.starts }

// Stop ends the process with SIGTERM. Its exit status has to be 0.
func (p *Program) Stop() error { return p.end((*Daemon).Stop) }

// Kill ends the process with SIGKILL. It may have ended already.
func (p *Program) Kill() error { return p.end((*Daemon).Kill) }

func (p *Program) end(how func(*Daemon) error) error {
	if p.process == nil {
		return errNotStarted
	}
	return how(p.process)
}

// Close kills the process if there is one.
func (p *Program) Close() error {
	if p.process == nil {
		return nil
	}
	return p.process.Kill()
}

// Alive returns an error that says how the process ended, or nil while it runs and before the first start.
func (p *Program) Alive() error {
	if p.process == nil || p.process.Running() {
		return nil
	}
	return fmt.Errorf("%s ended (%s); its log %s ends with\n%s", filepath.Base(p.Binary), p.process.End(), p.process.LogFile(), p.process.Tail(10))
}

// AwaitExit waits until the process has ended by itself, with an exit status.
func (p *Program) AwaitExit(ctx context.Context, status int) error {
	if p.process == nil {
		return errNotStarted
	}
	select {
	case <-p.process.Ended():
	case <-ctx.Done():
		return fmt.Errorf("%s runs, want it to end with status %d: %w", filepath.Base(p.Binary), status, ctx.Err())
	}
	if got := p.process.ExitStatus(); got != status {
		return fmt.Errorf("status %d, want %d: %w", got, status, p.Alive())
	}
	return nil
}

// AwaitLog waits until the log contains a text, while the process runs.
func (p *Program) AwaitLog(ctx context.Context, text string) error {
	for {
		log, err := os.ReadFile(p.process.LogFile())
		if err != nil || strings.Contains(string(log), text) {
			return err
		}
		if err := p.Alive(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not say %q: %w; it ends with\n%s", p.process.LogFile(), text, ctx.Err(), p.process.Tail(10))
		case <-time.After(20 * time.Millisecond):
		}
	}
}
