// SPDX-License-Identifier: Apache-2.0

package inspection

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

// DumpSilent writes the archive about a proxy that does not answer: the state of its process, as far as this user may
// read it, and the kernel's rules and settings in the network namespace of that process. version is this program's.
func DumpSilent(ctx context.Context, silent *inspect.Silent, version string, to io.Writer) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	packed := gzip.NewWriter(to)
	a := &archive{ctx: ctx, tar: tar.NewWriter(packed), made: time.Now(), folder: "sluice-dump-" + host + "/"}
	a.add("problem.txt", "why this archive has nothing that only the proxy knows", func(to io.Writer) error {
		_, err := fmt.Fprintln(to, silent)
		return err
	})
	a.versions(version)
	a.process(silent.PID)
	inside := entering(silent.PID)
	for _, t := range slices.Concat(offloadTools, iptablesTools(iptkernel.NFT), iptablesTools(iptkernel.Legacy)) {
		a.tool(t, inside)
	}
	for _, m := range setup.Modes() {
		for _, t := range m.Tools {
			a.tool(tool(t), inside)
		}
	}
	for _, path := range kernelFiles { // the files of /proc/sys/net are those of the namespace of whoever opens them
		a.tool(tool{"proc/" + path, []string{"cat", "/proc/" + path}}, inside)
	}
	a.file("sysctls.json", filepath.Join(filepath.Dir(silent.Socket), "sysctls.json"))
	return a.end(packed)
}

// tool adds the output of a tool that runs in the namespaces that a prefix enters.
func (a *archive) tool(t tool, inside []string) {
	t.Command = slices.Concat(inside, t.Command)
	a.add("kernel/"+t.File, fmt.Sprint(t.Command), func(to io.Writer) error { return t.run(a.ctx, to) })
}

// process adds the kernel's information about a process and its threads, such as what each thread waits for.
func (a *archive) process(pid int) {
	if pid == 0 {
		return
	}
	dir := "/proc/" + strconv.Itoa(pid)
	for _, name := range []string{"status", "stat", "cgroup", "limits", "oom_score", "sched", "io"} {
		a.file("process/"+name, filepath.Join(dir, name))
	}
	threads, _ := filepath.Glob(filepath.Join(dir, "task", "*"))
	a.add("process/threads.txt", dir+"/task/*/{comm,wchan,syscall,stack}", func(to io.Writer) error {
		for _, thread := range threads {
			_, _ = fmt.Fprintf(to, "thread %s\n", filepath.Base(thread))
			for _, name := range []string{"comm", "wchan", "syscall", "stack"} {
				text, err := os.ReadFile(filepath.Join(thread, name))
				if err != nil {
					text = []byte(err.Error())
				}
				_, _ = fmt.Fprintf(to, "%s:\n%s\n", name, text)
			}
		}
		return nil
	})
}

// entering returns the command that runs another one in the network namespace of a process; none if that is this one's.
func entering(pid int) []string {
	other := func(kind string) bool {
		own, ownErr := os.Readlink("/proc/self/ns/" + kind)
		its, itsErr := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/" + kind)
		return ownErr == nil && itsErr == nil && own != its
	}
	if !other("net") {
		return nil
	}
	enter := []string{"nsenter", "--target", strconv.Itoa(pid), "--net"}
	if other("user") { // that of a sandbox
		enter = append(enter, "--user", "--mount", "--preserve-credentials")
	}
	return append(enter, "--")
}
