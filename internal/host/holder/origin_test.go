// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestGroupOf: groupOf names the systemd unit, container or pod of a control group.
func TestGroupOf(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for text, want := range map[string]string{
		"":                                "",
		"0::/\n":                          "",
		"0::/system.slice/cron.service\n": "in unit cron.service",
		"1:name=systemd:/user.slice/user-1000.slice/session-3.scope\n0::/\n":                              "in unit session-3.scope",
		"0::/user.slice/user@1000.service/app.slice/fw.service":                                           "in unit fw.service",
		"0::/system.slice/docker-" + id + ".scope\n":                                                      "in container 0123456789ab",
		"5:cpu:/kubepods/burstable/pod0a1b2c3d-0000-4000-8000-00000000000f/" + id + "\n":                  "in container 0123456789ab of the pod with UID 0a1b2c3d-0000-4000-8000-00000000000f",
		"0::/kubepods.slice/kubepods-pod0a1b2c3d_0000_4000_8000_00000000000f.slice/crio-" + id + ".scope": "in container 0123456789ab of the pod with UID 0a1b2c3d-0000-4000-8000-00000000000f",
		"0::/kubepods.slice/x.slice:cri-containerd:" + id:                                                 "in container 0123456789ab",
		"0::/a\x1b[31m.service": "in unit a?[31m.service",
	} {
		if got := groupOf(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestOrigin: Origin names the process that started another one, and nothing for a process ID with another command.
func TestOrigin(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	self, _ := stat(os.Getpid())
	began := fmt.Sprintf("started by %s (process %d)", self, os.Getpid())
	if own, _ := os.Readlink("/proc/self/ns/pid"); own != InitialPIDs {
		began = "" // the kernel reports numbers of another PID namespace
	}
	if got := Origin(cmd.Process.Pid, "cat"); !strings.HasPrefix(got, began) || began == "" && got != "" {
		t.Errorf("%q does not begin with %q", got, began)
	}
	if got := Origin(cmd.Process.Pid, "nft"); got != "" {
		t.Errorf("a number that another process has: %q", got)
	}
	_ = in.Close()
	_ = cmd.Wait()
	if got := Origin(cmd.Process.Pid, "cat"); got != "" {
		t.Errorf("a process that ended: %q", got)
	}
}
