// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// stateDir holds the node's own files.
const stateDir = "/run/node"

// runInside is the first process of the node: it prepares the node's view, starts its two daemons,
// and adopts every process whose parent ends. It returns only if something fails; the node ends
// with it.
func runInside(c config) error {
	if err := unix.Sethostname([]byte(c.name)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := mountAll(); err != nil {
		return err
	}
	if err := c.writeFiles(); err != nil {
		return err
	}
	containerd, err := c.spawn("containerd", "--config", containerdFile)
	if err != nil {
		return err
	}
	if err := awaitSocket(); err != nil {
		return err
	}
	kubelet, err := c.spawn(c.kubelet, c.kubeletArguments()...)
	if err != nil {
		return err
	}
	daemons := map[int]string{containerd: "containerd", kubelet: "kubelet"}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for processes: %w", err)
		}
		if name := daemons[pid]; name != "" {
			return fmt.Errorf("%s ended with status %d, signal %d; see %s", name, status.ExitStatus(), status.Signal(), c.log(name))
		}
	}
}

func (c config) log(program string) string {
	return filepath.Join(c.logs, filepath.Base(program)+".log")
}

// spawn starts a daemon and returns its process id. Nobody but the loop above may wait for it.
func (c config) spawn(program string, args ...string) (int, error) {
	output, err := os.Create(c.log(program))
	if err != nil {
		return 0, err
	}
	defer output.Close() // the child has its own descriptor
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start %s: %w", program, err)
	}
	return cmd.Process.Pid, nil
}

// socketMax bounds the start of containerd; a second is usual.
const socketMax = time.Minute

func awaitSocket() error {
	for deadline := time.Now().Add(socketMax); ; time.Sleep(20 * time.Millisecond) {
		_, err := os.Stat(containerdSocket)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("containerd is not ready after %v: %w", socketMax, err)
		}
	}
}
