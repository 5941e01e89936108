// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-proxy/sluice/internal/daemon"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/host/sandbox"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// demoMax bounds one run; it takes some three seconds.
var demoMax = testenv.Patience

// self is this test binary.
const self = "/proc/self/exe"

// at matches the time of a step.
const at = ` *\d+\.\d\ds  `

// told are the lines of the demo, in order. RULES are one or more rules of the Service.
var told = []string{
	``, `1\. A private network`, `Everything runs in a sandbox, .*`, `A client and the pods are real, .*`,
	at + `sandbox: private user, mount and network namespaces; the host is out of reach`,
	at + `network: a client, this node, and 4 pods with 16 real servers`,
	at + `manifests: 3 files in \S+`,
	``, `2\. Rules`, `A Service has an address that no machine owns\.`, `Sluice writes rules .*`,
	at + `kernel: (nftables|iptables-\w+)/IPv4, (nftables|iptables-\w+)/IPv6`,
	at + `rules: both Services are in the kernel, \S+ after the proxy started`,
	at + `rules of demo/echo on IPv4, as the kernel lists them \(.*\):`,
	`RULES`,
	at + `where would a connection end\? sluice explain --from 192\.0\.2\.10:40000 --to 172\.30\.0\.41:80 \(in part\):`,
	`         Service:  demo/echo, port echo \(ClusterIP, .*\)`,
	`         Verdict:  delivered to one of 3 endpoints, which sees an address of the node`, `         ENDPOINT +PROBABILITY +NODE +STATE +SEES`,
	`         10\.244\.1\.11:8080 +33\.\d+ % +demo +ready +node`, `         10\.244\.1\.12:8080 +33`, `         10\.244\.1\.13:8080 +33`,
	``, `3\. Connections`, `Every address must work, .*`,
	at + `connections: 1000 from the client to the Service addresses`,
	at + `   TCP on IPv4 172\.30\.0\.41:80 +pod-11 ×\d+  pod-12 ×\d+  pod-13 ×\d+`,
	at + `   TCP on IPv6 \[fd00:172:30::41\]:80 +pod-11 ×\d+  pod-12 ×\d+  pod-13 ×\d+`,
	at + `   UDP on IPv4 172\.30\.0\.53:53 +pod-11 ×\d+  pod-12 ×\d+  pod-13 ×\d+`,
	at + `   UDP on IPv6 \[fd00:172:30::53\]:53 +pod-11 ×\d+  pod-12 ×\d+  pod-13 ×\d+`,
	``, `4\. A change`, `A pod is replaced .*`,
	at + `change: pod-13 replaced by pod-14 under load: first answer \S+ after the file was saved`,
	at + `   change → kernel: all rules in place \S+ after the file was saved, \S+ after it had been read`,
	at + `   \d+ connections meanwhile, none lost`,
	``, `5\. A crash`, `One goroutine, .*`, `Sluice must restart it, .*`,
	at + `panic: the actor of demo/echo was made to panic at a change; restarted, and the change was in the kernel after \S+`,
	at + `   \d+ connections meanwhile, none lost`,
	``, `6\. A hang`, `Now the actor stops responding\..*`,
	at + `hang: the actor of demo/echo was made to hang at a change; restarted, and the change was in the kernel after \S+`,
	at + `   it stood at: demo\.\(\*chaos\)\.intercept at chaos\.go:\d+`,
	at + `   \d+ connections meanwhile, none lost`,
	at + `done: \d+ batches wrote \d+ objects`,
}

func TestKernelDemo(t *testing.T) {
	for _, mode := range []string{"nftables", "iptables"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			testDemo(t, exec.Command(self, "demo", mode))
		})
	}
}

// TestKernelDemo_Unprivileged runs the demo as a user without any rights. That user cannot read the folder of the test
// binary, so it is passed as a file.
func TestKernelDemo_Unprivileged(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(self, "demo", "") // which chooses the mode
	if os.Geteuid() == 0 {
		file, err := os.Open(self)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close() // opened for reading, nothing can be lost
		cmd.Path, cmd.Dir = "/proc/self/fd/3", "/"
		cmd.ExtraFiles = []*os.File{file}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	testDemo(t, cmd)
}

// testDemo runs the demo and compares its output with told.
func testDemo(t *testing.T, cmd *exec.Cmd) {
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	cmd.Env = append(os.Environ(), "TMPDIR=/tmp", "GORACE=atexit_sleep_ms=0")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(demoMax, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	if err != nil || problems.Len() > 0 {
		t.Fatalf("%v\n%s%s", err, out.String(), problems.String())
	}
	rules := regexp.MustCompile(`(?m)(^ {9}(172\.30\.0\.41 |-A ).*"demo/echo:.*\n)+`)
	lines := strings.Split(strings.TrimSuffix(rules.ReplaceAllString(out.String(), "RULES\n"), "\n"), "\n")
	if len(lines) != len(told) {
		t.Errorf("%d lines, want %d", len(lines), len(told))
	}
	for i := range min(len(lines), len(told)) {
		if !regexp.MustCompile(`^` + told[i]).MatchString(lines[i]) {
			t.Errorf("line %d is %q, want %s", i+1, lines[i], told[i])
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
	dir := regexp.MustCompile(`in (/tmp/sluice-demo-\d+)`).FindStringSubmatch(out.String())
	if dir == nil {
		t.Fatal("the directory of the manifests is not named")
	}
	if _, err := os.Stat(dir[1]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left behind: %v", dir[1], err)
	}
}

// TestMain lets the test binary be the demo: with the arguments "demo" and a mode, it runs
// the demo in a sandbox.
func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Args[1] != "demo" {
		os.Exit(m.Run())
	}
	status, err := inSandbox(os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		status = 1
	}
	os.Exit(status)
}

func inSandbox(mode string) (status int, err error) {
	if !sandbox.Inside() {
		return sandbox.Run(nil)
	}
	if err := sandbox.Enter(); err != nil {
		return 1, err
	}
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	o := daemon.Options{Options: setup.Options{Flags: config.BindMode(flags)}}
	if err := errors.Join(flags.Parse([]string{"--proxy-mode", mode}), o.Load()); err != nil {
		return 1, err
	}
	return 0, Run(context.Background(), &o, os.Stdout, false)
}
