// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/test/testenv"
)

// endMax bounds what a test waits for.
var endMax = testenv.Patience

// sandboxed returns a command that plays a role in a sandbox.
func sandboxed(role string) *exec.Cmd {
	cmd := exec.Command(self, "sandboxed", role)
	cmd.Args[0] = "its-own-name"
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	return cmd
}

// unprivileged makes a program run as a user without privileges. That user cannot reach the
// test binary by name, so it is passed as an open file.
func unprivileged(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		return cmd // this user will do
	}
	file, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() }) // opened for reading, nothing can be lost
	cmd.Path, cmd.Dir = "/proc/self/fd/3", "/"
	cmd.ExtraFiles = []*os.File{file}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd
}

// TestKernelSandbox_ExitStatus: the sandbox ends with the exit status of the process inside.
func TestKernelSandbox_ExitStatus(t *testing.T) {
	err := sandboxed("fail").Run()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 7 {
		t.Errorf("got %v, want exit status 7", err)
	}
}

// TestKernelSandbox_EndedBySignal: the sandbox reports the signal that ended the process inside.
func TestKernelSandbox_EndedBySignal(t *testing.T) {
	printed, err := sandboxed("die").CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 1 || string(printed) != "sandbox: ended by signal: killed\n" {
		t.Errorf("got %v, %q", err, printed)
	}
}

// TestKernelSandbox_Private: the process inside has separate namespaces and a private /run, also if started by an
// unprivileged user.
func TestKernelSandbox_Private(t *testing.T) {
	for name, cmd := range map[string]*exec.Cmd{
		"as this user": sandboxed("look"), "unprivileged": unprivileged(t, sandboxed("look")),
	} {
		t.Run(name, func(t *testing.T) {
			printed, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, printed)
			}
			seen := map[string]string{}
			for line := range strings.Lines(string(printed)) {
				word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
				seen[word] = rest
			}
			if seen["name"] != cmd.Args[0] || seen["ids"] != "0 0 0" || "/run/"+seen["run"] != runFile {
				t.Errorf("inside: %q", seen)
			}
			for _, kind := range namespaces {
				outside, err := os.Readlink("/proc/self/ns/" + kind)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.HasPrefix(seen[kind], kind+":[") || seen[kind] == outside {
					t.Errorf("namespace %s: inside %q, outside %q", kind, seen[kind], outside)
				}
			}
			if _, err := os.Stat(runFile); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s outside: %v", runFile, err)
			}
		})
	}
}

// waiting starts a sandbox that waits for a signal.
func waiting(t *testing.T) (outer *exec.Cmd, output *bufio.Reader, inner int) {
	t.Helper()
	outer = sandboxed("wait")
	pipe, err := outer.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := outer.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = outer.Process.Kill() }) // an error means that it has ended
	output = bufio.NewReader(pipe)
	if _, err := fmt.Fscanf(output, "waiting as %d\n", &inner); err != nil {
		t.Fatal(err)
	}
	return outer, output, inner
}

// TestKernelSandbox_ForwardsSignals: the sandbox forwards signals to the process inside.
func TestKernelSandbox_ForwardsSignals(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) {
			outer, output, _ := waiting(t)
			if err := outer.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			line, err := output.ReadString('\n')
			if err != nil || line != "got "+strings.ToUpper(signal.String())+"\n" {
				t.Errorf("the sandbox says %q, %v", line, err)
			}
			exit, ok := errors.AsType[*exec.ExitError](outer.Wait())
			if !ok || exit.ExitCode() != 3 {
				t.Errorf("got %v, want exit status 3", exit)
			}
		})
	}
}

// TestKernelSandbox_EndsWithParent: the process inside ends with its parent.
func TestKernelSandbox_EndsWithParent(t *testing.T) {
	outer, output, inner := waiting(t)
	if err := outer.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// The pipe is at its end when the last process that could write has ended.
	ended := make(chan error, 1)
	go func() {
		_, err := output.ReadString('\n')
		ended <- err
	}()
	select {
	case <-ended:
	case <-time.After(endMax):
		_ = syscall.Kill(inner, syscall.SIGKILL) // ours, and it should be gone
		t.Errorf("the process inside outlived its parent by %v", endMax)
	}
	if err := outer.Wait(); err == nil {
		t.Error("the parent was killed and gives no error")
	}
}

// TestEnter_RejectsHost: Enter returns an error outside a sandbox, so that the variable alone does not cause a mount
// over the host's /run.
func TestEnter_RejectsHost(t *testing.T) {
	t.Setenv(marker, "1")
	if OwnUserNamespace() {
		t.Fatal("this test must run outside user namespaces")
	}
	if err := Enter(); err == nil || !strings.Contains(err.Error(), "not a sandbox") {
		t.Fatalf("got %v", err)
	}
}
