// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

const (
	// InitialPIDs is the PID namespace of the host (PROC_PID_INIT_INO), to which the process IDs in the kernel's
	// announcements belong. In another namespace, these IDs are those of other processes.
	InitialPIDs = "pid:[4026531836]"
	// parentsMax bounds the parents that Origin names.
	parentsMax = 3
)

// Origin describes where a process comes from: its parents, and its container or unit of systemd. Pid is its ID in the
// initial PID namespace, and name its name there. Origin returns "" if it cannot be seen, or has ended.
func Origin(pid int, name string) string {
	if own, err := os.Readlink("/proc/self/ns/pid"); err != nil || own != InitialPIDs {
		return ""
	}
	group, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)) // first: the process is about to end
	found, parent := stat(pid)
	if found == "" || found != name {
		return ""
	}
	var parents, all []string
	for parent > 1 && len(parents) < parentsMax {
		var comm string
		at := parent
		if comm, parent = stat(at); comm == "" {
			break
		}
		parents = append(parents, fmt.Sprintf("%s (process %d)", Plain(comm), at))
	}
	if len(parents) > 0 {
		all = append(all, "started by "+strings.Join(parents, " of "))
	}
	if in := groupOf(string(group)); in != "" {
		all = append(all, in)
	}
	return strings.Join(all, ", ")
}

// stat returns the name and the parent of a process. The name is "" if it cannot be read.
func stat(pid int) (name string, parent int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	begin, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if err != nil || begin < 0 || end < begin {
		return "", 0
	}
	if fields := strings.Fields(string(text[end+1:])); len(fields) > 1 {
		parent, _ = strconv.Atoi(fields[1]) // 0 for none
	}
	return string(text[begin+1 : end]), parent
}

var (
	containerID = regexp.MustCompile(`(?:^|[-:/])([0-9a-f]{64})(?:\.scope)?$`)
	podUID      = regexp.MustCompile(`pod([0-9a-f]{8}[-_][0-9a-f_-]{27})`)
)

// groupOf names the container or the unit in the text of /proc/PID/cgroup.
func groupOf(text string) string {
	unit := ""
	for line := range strings.Lines(text) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		_, path, _ := strings.Cut(rest, ":")
		if id := containerID.FindStringSubmatch(path); id != nil {
			in := "in container " + id[1][:12]
			if uid := podUID.FindStringSubmatch(path); uid != nil {
				in += " of the pod with UID " + strings.ReplaceAll(uid[1], "_", "-")
			}
			return in
		}
		for part := range strings.SplitSeq(path, "/") {
			if strings.HasSuffix(part, ".service") || strings.HasSuffix(part, ".scope") {
				unit = "in unit " + Plain(part)
			}
		}
	}
	return unit
}
