// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// stopMax is how long a process may take to end after SIGTERM.
const stopMax = 30 * time.Second

// Daemon is a child process in a namespace. Everything it prints goes to one file, and it does not
// outlive this process, however that ends. Its methods may be called from anywhere.
type Daemon struct {
	name string
	log  string
	cmd  *exec.Cmd

	ended chan struct{} // closed when the process has ended
	err   error         // how it ended; to be read after ended is closed
}

// StartDaemon starts the command inside the namespace with its output going to the file log.
func StartDaemon(n *netns.Namespace, log string, cmd *exec.Cmd) (*Daemon, error) {
	name := filepath.Base(cmd.Path)
	output, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer output.Close() // the child has its own descriptor
	cmd.Stdout, cmd.Stderr = output, output
	// The kernel sends the signal when the starting *thread* dies. So the thread waits below.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	p := &Daemon{name: name, log: log, cmd: cmd, ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		p.err = n.Do(func() error {
			if err := cmd.Start(); err != nil {
				return err
			}
			started <- nil
			return cmd.Wait()
		})
		close(p.ended)
		started <- p.err // read only when nothing was sent above; there is room for one
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s in netns %s: %w", name, n.Name(), err)
	}
	return p, nil
}

// PID returns the process id.
func (p *Daemon) PID() int { return p.cmd.Process.Pid }

// LogFile returns the file with everything the process printed.
func (p *Daemon) LogFile() string { return p.log }

// AwaitLine waits until the process has printed a whole line that begins with the text. It returns an
// error when the process ends before, or the context does.
func (p *Daemon) AwaitLine(ctx context.Context, beginning string) error {
	const interval = 20 * time.Millisecond
	for {
		log, err := os.ReadFile(p.log)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		for line := range bytes.Lines(log) {
			if bytes.HasPrefix(line, []byte(beginning)) && line[len(line)-1] == '\n' {
				return nil
			}
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended before it printed %q: %s", p.name, beginning, p.End())
		case <-ctx.Done():
			return fmt.Errorf("%s did not print %q: %w", p.name, beginning, ctx.Err())
		case <-time.After(interval):
		}
	}
}

// Running reports whether the process has not ended yet.
func (p *Daemon) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Stop sends SIGTERM and waits. It returns an error when the process had ended before, ends with a
// status other than 0, or has to be killed because it takes too long.
func (p *Daemon) Stop() error {
	if !p.Running() {
		return fmt.Errorf("%s ended unexpectedly (%v), see %s", p.name, p.End(), p.log)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("%s: SIGTERM: %w", p.name, err)
	}
	select {
	case <-p.ended:
		if p.err != nil {
			return fmt.Errorf("%s after SIGTERM: %w, see %s", p.name, p.err, p.log)
		}
		return nil
	case <-time.After(stopMax):
		return errors.Join(fmt.Errorf("%s did not end within %v of SIGTERM, see %s", p.name, stopMax, p.log), p.Kill())
	}
}

// Kill ends the process with SIGKILL, as an operating system short of memory would, and waits for
// it. A process that has ended already is no error.
func (p *Daemon) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: SIGKILL: %w", p.name, err)
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopMax):
		return fmt.Errorf("%s did not end within %v of SIGKILL", p.name, stopMax)
	}
}

// Ended returns a channel that is closed when the process has ended.
func (p *Daemon) Ended() <-chan struct{} { return p.ended }

// Err returns how the process ended, nil for status 0. It may be called once Ended is closed.
func (p *Daemon) Err() error { return p.err }

// Signal sends a signal.
func (p *Daemon) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// ExitStatus waits until the process ends, and returns its status; -1 when a signal ended it.
func (p *Daemon) ExitStatus() int {
	<-p.ended
	return p.cmd.ProcessState.ExitCode()
}

// End says how a process that is not running ended.
func (p *Daemon) End() string {
	if p.err == nil {
		return "exit status 0"
	}
	return p.err.Error()
}

// tailWidth is how much of a line is shown.
const tailWidth = 200

// Tail returns the last lines of the log, for a message to a person.
func (p *Daemon) Tail(lines int) string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	var text strings.Builder
	if left := len(all) - lines; left > 0 {
		fmt.Fprintf(&text, "(%d lines before these)\n", left)
		all = all[left:]
	}
	for _, line := range all {
		if len(line) > tailWidth {
			line = line[:tailWidth] + "..."
		}
		text.WriteString(line + "\n")
	}
	return text.String()
}
