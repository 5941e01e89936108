package sandbox

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test binary be the program that runs itself in a sandbox:
// called with "sandboxed ROLE", it starts a sandbox, and plays the role inside.
func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Args[1] != "sandboxed" {
		os.Exit(m.Run())
	}
	if Inside() {
		os.Exit(play(os.Args[2]))
	}
	status, err := Run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

// play does what a role says and gives the exit status.
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

// look says what it is like inside.
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

// runFile is made in the sandbox's /run.
const runFile = "/run/sluice-sandbox-test"

// namespaces are those that a sandbox has of its own.
var namespaces = []string{"user", "mnt", "net"}

// wait says its pid and waits for a signal; asked to stop, it ends with status 3.
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
