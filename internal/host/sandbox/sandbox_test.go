// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test binary be the program that runs itself in a sandbox: with the arguments "sandboxed ROLE", it
// starts a sandbox and plays the role inside.
func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Args[1] != "sandboxed" {
		os.Exit(m.Run())
	}
	if Inside() {
		os.Exit(play(os.Args[2]))
	}
	status, err := Run(nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

// play plays a role, and returns the exit status.
func play(role string) int {
	switch role {
	case "fail":
		return 7
	case "look":
		return look()
	case "wait":
		return wait()
	case "die":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return 1
}

// look prints what it finds inside.
func look() int {
	if err := Enter(); err != nil {
		fmt.Println(err)
		return 1
	}
	if err := os.WriteFile(runFile, nil, 0o600); err != nil {
		fmt.Println(err)
		return 1
	}
	entries, err := os.ReadDir("/run")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("name", os.Args[0])
	fmt.Println("ids", os.Getuid(), os.Geteuid(), os.Getgid())
	for _, entry := range entries {
		fmt.Println("run", entry.Name())
	}
	for _, kind := range namespaces {
		name, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(kind, name)
	}
	return 0
}

// runFile is created in the sandbox's /run.
const runFile = "/run/sluice-sandbox-test"

// namespaces are the private namespaces of a sandbox.
var namespaces = []string{"user", "mnt", "net"}

// wait prints its pid and waits for a signal, which ends it with status 3.
func wait() int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGHUP)
	fmt.Println("waiting as", os.Getpid())
	select {
	case s := <-signals:
		fmt.Println("got", strings.ToUpper(s.String()))
		return 3
	case <-time.After(time.Minute):
		return 4
	}
}

func TestEnter_Outside(t *testing.T) {
	if err := Enter(); err == nil || !strings.Contains(err.Error(), "not inside") {
		t.Errorf("got %v; the mounts of a program outside must be left alone", err)
	}
}

func TestExplain(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{syscall.EPERM, "user.max_user_namespaces"},
		{syscall.ENOSPC, "or run as root"},
		{syscall.EUSERS, "kernel.apparmor_restrict_unprivileged_userns=0"},
		{syscall.ENOMEM, "sandbox: cannot start: "},
	} {
		err := explain(c.err)
		if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("explain(%v) = %v, want %q in it", c.err, err, c.want)
		}
	}
}
