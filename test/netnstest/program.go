// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Host is a [netns.Namespace], or what has one.
type Host interface {
	Name() string
	Do(func() error) error
}

// Start starts the command inside the namespace, as exec.Cmd.Start does; the caller waits for it.
//
// A parent-death signal (SysProcAttr.Pdeathsig) follows the thread that started the child, not the
// process. Threads are normally given back and live on, except where the comment of package netns says that
// one is used up per call: there the child would be killed immediately.
func Start(n Host, cmd *exec.Cmd) error { return n.Do(cmd.Start) }

// Run runs the command inside the namespace and waits for it, as exec.Cmd.Run does.
func Run(n Host, cmd *exec.Cmd) error {
	if err := Start(n, cmd); err != nil {
		return err
	}
	return cmd.Wait() // waiting needs no thread inside
}

// Output runs the command inside the namespace and returns what it printed, as exec.Cmd.Output
// does.
func Output(n Host, cmd *exec.Cmd) ([]byte, error) {
	var printed []byte
	err := n.Do(func() error {
		var err error
		printed, err = cmd.Output()
		return err
	})
	return printed, err
}

// ReadSysctl returns a kernel parameter of a namespace without the final line end. The key is as for
// [netns.Namespace.Sysctl].
func ReadSysctl(n Host, key string) (string, error) {
	if !strings.Contains(key, "/") {
		key = strings.ReplaceAll(key, ".", "/")
	}
	var value []byte
	err := n.Do(func() (err error) {
		value, err = os.ReadFile("/proc/sys/" + key)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("netns %s: read %s: %w", n.Name(), key, err)
	}
	return strings.TrimSuffix(string(value), "\n"), nil
}
