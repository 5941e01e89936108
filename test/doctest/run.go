// SPDX-License-Identifier: Apache-2.0

package doctest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Bench is where the commands of a page run.
type Bench struct {
	// Dir is the working directory. It should have what the page relies on.
	Dir string
	// Env is added to the environment.
	Env []string
	// Prefix comes before each shell, for example to give up privileges.
	Prefix []string
	// Start starts a command, for example in a network namespace. Nil starts it here.
	Start func(*exec.Cmd) error
}

// waitMax bounds each command, and what a background command is to print.
const waitMax = time.Minute

// Run runs the commands of a page, one after the other. Background commands are interrupted
// at the end, and must then end by themselves.
func Run(t *testing.T, page string, bench Bench) {
	t.Helper()
	commands, err := Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	commands = slices.DeleteFunc(commands, func(c Command) bool { return c.Skip })
	if len(commands) == 0 {
		t.Fatalf("%s contains no command to run", page)
	}
	if bench.Start == nil {
		bench.Start = (*exec.Cmd).Start
	}
	r := &run{T: t, Bench: bench, page: filepath.Base(page)}
	defer r.end()
	for _, c := range commands {
		r.command(c)
	}
}

// run is one run of a page.
type run struct {
	*testing.T
	Bench
	page    string
	running []*process
}

// process is a background command.
type process struct {
	Command
	cmd    *exec.Cmd
	output *output
	ended  chan error
}

// output is what a command prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds to it.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (r *run) command(c Command) {
	r.Helper()
	if c.Paste {
		c.Text = r.printed(c)
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		p := r.start(c)
		if c.Background {
			r.running = append(r.running, p)
			r.await(p)
			return
		}
		again := c.Await && time.Since(began) < waitMax
		if done := r.finish(p, again); done {
			return
		}
	}
}

// finish waits for a command and checks it. It reports false if it is to be tried again.
func (r *run) finish(p *process, again bool) (done bool) {
	r.Helper()
	select {
	case err := <-p.ended:
		if again && p.missing() != "" {
			return false
		}
		r.check(p, err)
	case <-time.After(waitMax):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.ended
		r.fail(p.Command, "still runs after %v; it printed\n%s", waitMax, p.output)
	}
	return true
}

func (r *run) start(c Command) *process {
	r.Helper()
	words := append(append([]string{}, r.Prefix...), "bash", "-c", c.Text)
	p := &process{Command: c, cmd: exec.Command(words[0], words[1:]...), output: &output{}, ended: make(chan error, 1)}
	p.cmd.Dir, p.cmd.Env = r.Dir, append(os.Environ(), r.Env...)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what the shell starts ends with it
	if err := r.Start(p.cmd); err != nil {
		r.fail(c, "cannot be started: %v", err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	return p
}

func (r *run) check(p *process, err error) {
	r.Helper()
	status := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		status = exit.ExitCode()
	} else if err != nil {
		r.fail(p.Command, "%v", err)
	}
	if status != p.Status {
		r.fail(p.Command, "exited with status %d, want %d; it printed\n%s", status, p.Status, p.output)
	}
	if missing := p.missing(); missing != "" {
		r.fail(p.Command, "does not print, or not in this order,\n%s\nIt printed\n%s", missing, p.output)
	}
}

// await waits until a background command has printed what it has to.
func (r *run) await(p *process) {
	r.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		select {
		case err := <-p.ended:
			p.ended <- err
			r.fail(p.Command, "ended: %v; it printed\n%s", err, p.output)
		default:
		}
		missing := p.missing()
		if missing == "" {
			return
		}
		if time.Since(began) > waitMax {
			r.fail(p.Command, "does not print\n%s\nIt printed\n%s", missing, p.output)
		}
	}
}

// missing returns the first wanted line that has not been printed after the ones before it.
func (p *process) missing() string {
	text := p.output.String()
	switch {
	case p.Figures:
		return missing(withoutFigures(text), p.Want, withoutFigures)
	case p.Background:
		return missing(withoutNumbers(text), p.Want, withoutNumbers)
	default:
		return missing(text, p.Want)
	}
}

var (
	// digits are what differs between a page and a run.
	digits = regexp.MustCompile(`[0-9]+`)
	// figures are numbers, durations and times of the day.
	figures = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z|([0-9]+(\.[0-9]+)?(ms|µs|[hms])?)+`)
)

// pastedMin is how many words of a printed line a command has to begin with.
const pastedMin = 3

// printed returns a command with the words at its beginning that a background command has
// printed, in place of those that are the same apart from numbers: the numbers of processes
// and files.
func (r *run) printed(c Command) string {
	r.Helper()
	words := strings.Fields(c.Text)
	best, length := "", pastedMin-1
	for _, p := range r.running {
		for line := range strings.Lines(p.output.String()) {
			there := strings.Fields(line)
			same := 0
			for same < min(len(there), len(words)) && alike(there[same], words[same]) {
				same++
			}
			if same > length {
				best, length = strings.Join(there[:same], " ")+after(c.Text, same), same
			}
		}
	}
	if best == "" {
		r.fail(c, "no background command printed a line that begins like this")
	}
	return best
}

// alike reports whether two words are equal apart from numbers.
func alike(a, b string) bool { return withoutNumbers(a) == withoutNumbers(b) }

func withoutNumbers(text string) string { return digits.ReplaceAllString(text, "N") }

func withoutFigures(text string) string { return figures.ReplaceAllString(text, "N") }

// after returns a text without its first words.
func after(text string, words int) string {
	for range words {
		text = strings.TrimLeft(text, " \t\n")
		at := strings.IndexAny(text, " \t\n")
		if at < 0 {
			return ""
		}
		text = text[at:]
	}
	return text
}

// end interrupts the background commands.
func (r *run) end() {
	r.Helper()
	for _, p := range r.running {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT) // an error means that it has ended
		select {
		case <-p.ended:
		case <-time.After(waitMax):
			_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
			<-p.ended
			r.Errorf("%s:%d: %s: still runs %v after an interrupt", r.page, p.Line, p.Text, waitMax)
		}
	}
}

func (r *run) fail(c Command, format string, args ...any) {
	r.Helper()
	r.Fatalf("%s:%d: %s: %s", r.page, c.Line, c.Text, fmt.Sprintf(format, args...))
}

// missing returns the first wanted line that is not in a text after the ones before it. Forms
// are applied to the wanted lines.
func missing(text string, want []string, forms ...func(string) string) string {
	lines := strings.Split(text, "\n")
	for _, w := range want {
		form := w
		for _, f := range forms {
			form = f(form)
		}
		pattern := pattern(form)
		for len(lines) > 0 && !pattern.MatchString(squeezed(lines[0])) {
			lines = lines[1:]
		}
		if len(lines) == 0 {
			return w
		}
		lines = lines[1:]
	}
	return ""
}

// pattern matches a line of a page, in which "…" stands for any text.
func pattern(line string) *regexp.Regexp {
	parts := strings.Split(squeezed(line), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
}

// squeezed returns a line with single spaces between its words.
func squeezed(line string) string { return strings.Join(strings.Fields(line), " ") }
