package main

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a program in the background; what it prints is in NAME.log.
type process struct {
	cmd *exec.Cmd
	log string
	// ended is closed when it has ended, with its status in status.
	ended  chan struct{}
	status string
}

// start NAME PROGRAM ARGUMENT...
//
// Starts a program in the namespace, in the background; what it prints is in
// NAME.log. It is killed at the end of the script.
func cmdStart(b *bench, args []string) {
	if len(args) < 2 {
		b.Fatalf("usage: start NAME PROGRAM ARGUMENT...")
	}
	if b.running[args[0]] != nil {
		b.Fatalf("%s has been started before", args[0])
	}
	p := &process{cmd: b.command(args[1:]), log: args[0] + ".log", ended: make(chan struct{})}
	log, err := os.Create(b.MkAbs(p.log))
	b.Check(err)
	defer log.Close() //nolint:errcheck // the child has a descriptor of its own
	p.cmd.Stdout, p.cmd.Stderr = log, log
	b.changed = time.Now()
	b.Check(b.namespace.Start(p.cmd))
	go func() {
		p.status = exitStatus(p.cmd.Wait())
		close(p.ended)
	}()
	b.running[args[0]] = p
	b.Defer(func() {
		_ = p.cmd.Process.Kill() // an error means that it has ended
		<-p.ended
	})
}

// exitStatus is the exit status, or the name of the signal that ended it.
func exitStatus(err error) string {
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return "0"
	case !ok:
		return err.Error()
	case exit.Sys().(syscall.WaitStatus).Signaled():
		return exit.Sys().(syscall.WaitStatus).Signal().String()
	default:
		return exitText(exit.ExitCode())
	}
}

func exitText(status int) string { return strconv.Itoa(status) }

func (b *bench) process(name string) *process {
	p := b.running[name]
	if p == nil {
		b.Fatalf("%s has not been started", name)
	}
	return p
}

// await NAME PATTERN
//
// Waits until the log of a program in the background matches.
func cmdAwait(b *bench, args []string) {
	if len(args) != 2 {
		b.Fatalf("usage: await NAME PATTERN")
	}
	p, pattern := b.process(args[0]), regexp.MustCompile(`(?m)`+args[1])
	for deadline := time.Now().Add(waitMax); ; time.Sleep(5 * time.Millisecond) {
		log := b.ReadFile(p.log)
		switch {
		case pattern.MatchString(log):
			return
		case time.Now().After(deadline):
			b.Fatalf("%v passed without %q in\n%s", waitMax, args[1], log)
		}
	}
}

// end NAME SIGNAL STATUS
//
// Sends TERM, INT or KILL to a program in the background, or NONE, and waits for its end.
// STATUS is its exit status, or the signal that ended it: "killed".
func cmdEnd(b *bench, args []string) {
	if len(args) != 3 {
		b.Fatalf("usage: end NAME SIGNAL STATUS")
	}
	signals := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL}
	signal, ok := signals[args[1]]
	p := b.process(args[0])
	switch {
	case ok:
		b.Check(p.cmd.Process.Signal(signal))
	case args[1] != "NONE":
		b.Fatalf("unknown signal %s", args[1])
	}
	select {
	case <-p.ended:
	case <-time.After(waitMax):
		b.Fatalf("%s still runs %v after %v:\n%s", args[0], waitMax, signal, b.ReadFile(p.log))
	}
	if p.status != args[2] {
		b.Fatalf("%s ended with %s, want %s:\n%s", args[0], p.status, args[2], b.ReadFile(p.log))
	}
}

// enter NAME
//
// From now on, rules are looked at inside the sandbox of a program in the
// background, in the way that the program itself has printed.
func cmdEnter(b *bench, args []string) {
	if len(args) != 1 {
		b.Fatalf("usage: enter NAME")
	}
	cmdAwait(b, []string{args[0], `^  nsenter .*(-save| nft list ruleset)$`})
	hint := regexp.MustCompile(`(?m)^  (nsenter .*) (?:\S*-save|nft list ruleset)$`).FindStringSubmatch(b.ReadFile(b.process(args[0]).log))
	b.entrance = strings.Fields(hint[1])
}
