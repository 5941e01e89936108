package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// What the parent tells a child besides the flags.
const (
	// outsideVar names the network namespace that must not be touched.
	outsideVar = "REACTION_OUTSIDE"
	// startedVar is when the child was started, in nanoseconds since 1970.
	startedVar = "REACTION_STARTED"
)

// self is this program, wherever its file has gone (proc_pid_exe(5)).
const self = "/proc/self/exe"

// runChild makes one measurement in a process and a network namespace of its
// own, so that it finds no rules, and no memory that somebody else has used.
func runChild(name string, timeout time.Duration) (r result, err error) {
	namespace, err := netns.New(name)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, namespace.Close()) }()
	outside, err := ownNamespace()
	if err != nil {
		return r, err
	}
	cmd := exec.Command(self, append([]string{"-inside", name}, os.Args[1:]...)...)
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, os.Stderr
	cmd.Env = append(os.Environ(), outsideVar+"="+outside, fmt.Sprintf("%s=%d", startedVar, time.Now().UnixNano()))
	if err := namespace.Start(cmd); err != nil {
		return r, err
	}
	// The child gives up by itself; this is for one that cannot.
	alarm := time.AfterFunc(timeout+time.Minute, func() { _ = cmd.Process.Kill() })
	defer alarm.Stop()
	if err := cmd.Wait(); err != nil {
		return r, err
	}
	return r, json.Unmarshal(printed.Bytes(), &r)
}

// ownNamespace names the network namespace of this process.
func ownNamespace() (string, error) { return os.Readlink("/proc/self/ns/net") }

// checkInside refuses to touch the rules of a namespace that was not made for it.
func checkInside() error {
	own, err := ownNamespace()
	if err != nil {
		return err
	}
	if outside := os.Getenv(outsideVar); outside == "" || outside == own {
		return errors.New("-inside is for the program itself: this network namespace was not made for it")
	}
	return nil
}

// processStart is when the parent started this process.
func processStart() (time.Time, error) {
	nanoseconds, err := strconv.ParseInt(os.Getenv(startedVar), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", startedVar, err)
	}
	return time.Unix(0, nanoseconds), nil
}
