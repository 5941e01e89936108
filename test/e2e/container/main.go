// SPDX-License-Identifier: Apache-2.0

// Command container runs a program the way a container runtime runs it for a pod with hostNetwork:
//
//	container SPEC.json
//	container --become SPEC.json
//
// The second form becomes the program in a separate mount namespace, as a service manager does.
// The first has further namespaces. It stays as the parent, passes SIGTERM and SIGINT on, and ends with the program's status. The
// specification is a [sandbox.Spec]. There is no image: the programs of this machine stand in for
// those of the image. What an image and a real runtime do is the subject of `make test-install`.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/sluice-proxy/sluice/test/harness/sandbox"
)

// inside marks the second start of this program, in the new namespaces.
const inside = "--inside"

const become = "--become"

// Capabilities belong to threads, so everything is done on the main one.
func init() { runtime.LockOSThread() }

func main() {
	if err := run(os.Args[1:]); err != nil {
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			os.Exit(failed.ExitCode())
		}
		fmt.Fprintln(os.Stderr, "container:", err)
		os.Exit(125)
	}
}

func run(args []string) error {
	if len(args) == 2 && (args[0] == inside || args[0] == become) {
		if args[0] == become {
			if err := syscall.Unshare(syscall.CLONE_NEWNS); err != nil {
				return err
			}
		}
		spec, err := sandbox.Read(args[1])
		if err != nil {
			return err
		}
		return spec.Exec()
	}
	if len(args) != 1 {
		return errors.New("usage: container [--become] SPEC.json")
	}
	cmd := exec.Command("/proc/self/exe", inside, args[0])
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // it may have ended
		}
	}()
	return cmd.Wait()
}
