// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// privateVariable is set in the process with private mounts.
const privateVariable = "SLUICE_CAMPAIGN_PRIVATE"

func isPrivate() bool { return os.Getenv(privateVariable) != "" }

// inPrivate runs this program once more with a separate mount namespace, so that nothing mounted
// there is seen elsewhere or left behind, and returns its exit status.
func inPrivate(ctx context.Context) int {
	runtime.LockOSThread() // the child ends with the thread that started it
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), privateVariable+"=yes")
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "campaign: private mounts:", err)
		return 1
	}
	return 0
}
