package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/apitest"
)

// bench is the state of one script.
type bench struct {
	*testscript.TestScript
	namespace *netns.Namespace
	running   map[string]*process
	// api is nil before the command of that name.
	api *apitest.Server
	// entrance are the words that lead from the namespace to where rules are
	// looked at; none by default.
	entrance []string
	// changed is when a file was last changed, or a program started.
	changed time.Time
}

type benchKey struct{}

func benchOf(ts *testscript.TestScript) *bench {
	b := ts.Value(benchKey{}).(*bench) // newBench puts nothing else there
	b.TestScript = ts
	return b
}

// command prepares a program to be run in the script's environment.
func (b *bench) command(args []string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = b.MkAbs(".")
	cmd.Env = os.Environ()
	for _, name := range []string{"XTABLES_LOCKFILE", "TMPDIR", "GORACE"} {
		cmd.Env = append(cmd.Env, name+"="+b.Getenv(name))
	}
	return cmd
}

// finish runs a program in the namespace and gives its exit status.
func (b *bench) finish(args []string) (status int, stdout, stderr string) {
	var out, problems bytes.Buffer
	cmd := b.command(args)
	cmd.Stdout, cmd.Stderr = &out, &problems
	// A program that does not end is stopped, and fails by its status.
	err := b.namespace.Start(cmd)
	b.Check(err)
	timer := time.AfterFunc(waitMax, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), out.String(), problems.String()
	}
	b.Check(err)
	return 0, out.String(), problems.String()
}

// run PROGRAM ARGUMENT...
//
// Runs a program in the namespace; it must succeed. What it prints is in
// run.out.
func cmdRun(b *bench, args []string) {
	if len(args) == 0 {
		b.Fatalf("usage: run PROGRAM ARGUMENT...")
	}
	status, stdout, stderr := b.finish(args)
	if status != 0 {
		b.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	b.Check(os.WriteFile(b.MkAbs("run.out"), []byte(stdout), 0o600))
}

// fails STATUS PATTERN PROGRAM ARGUMENT...
//
// Runs a program in the namespace; it must end with the status, print nothing on
// its standard output, and exactly one line, which matches, on standard error.
func cmdFails(b *bench, args []string) {
	if len(args) < 3 {
		b.Fatalf("usage: fails STATUS PATTERN PROGRAM ARGUMENT...")
	}
	status, stdout, stderr := b.finish(args[2:])
	line, ended := strings.CutSuffix(stderr, "\n")
	switch {
	case args[0] != exitText(status):
		b.Fatalf("status %d, want %s\n%s%s", status, args[0], stdout, stderr)
	case stdout != "" || !ended || strings.Contains(line, "\n"):
		b.Fatalf("want one line on standard error, got\n[stdout]\n%s[stderr]\n%s", stdout, stderr)
	case !regexp.MustCompile(args[1]).MatchString(line):
		b.Fatalf("%q does not match %q", line, args[1])
	}
}

// edit FILE OLD NEW
//
// Replaces every OLD in a file the way an editor saves: a new file, moved over
// the old one.
func cmdEdit(b *bench, args []string) {
	if len(args) != 3 {
		b.Fatalf("usage: edit FILE OLD NEW")
	}
	path := b.MkAbs(args[0])
	now := b.ReadFile(args[0])
	next := strings.ReplaceAll(now, args[1], args[2])
	if next == now {
		b.Fatalf("%s holds no %q", args[0], args[1])
	}
	hidden := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".swp")
	b.Check(os.WriteFile(hidden, []byte(next), 0o600))
	b.changed = time.Now()
	b.Check(os.Rename(hidden, path))
}

// remove FILE
func cmdRemove(b *bench, args []string) {
	if len(args) != 1 {
		b.Fatalf("usage: remove FILE")
	}
	b.changed = time.Now()
	b.Check(os.Remove(b.MkAbs(args[0])))
}
