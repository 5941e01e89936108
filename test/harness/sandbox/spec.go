// SPDX-License-Identifier: Apache-2.0

// Package sandbox confines a process as a container runtime does: a separate root file system
// with the mounts of a pod, PID and mount namespaces, and the capabilities of a securityContext.
package sandbox

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Spec says what to run, and how.
type Spec struct {
	// Root is an empty directory that becomes the root file system. "/" stands for this machine's own,
	// which then keeps its content.
	Root string `json:"root"`
	// Args is the program, found below Root, and its arguments.
	Args []string `json:"args"`
	// Env is its whole environment.
	Env    []string `json:"env"`
	Mounts []Mount  `json:"mounts"`
	// Privileged gives every capability and a writable /proc/sys and /sys.
	Privileged bool `json:"privileged"`
	// Capabilities are those of a process that is not privileged, such as NET_ADMIN.
	Capabilities []string `json:"capabilities"`
	// User is who runs the program, with the capabilities as ambient ones unless it is root.
	User            int  `json:"user"`
	NoNewPrivileges bool `json:"noNewPrivileges"`
	// Seccomp rejects the system calls that the default profile of a container runtime rejects.
	Seccomp          bool   `json:"seccomp"`
	ReadOnlyRoot     bool   `json:"readOnlyRoot"`
	WorkingDirectory string `json:"workingDirectory"`
}

// Mount makes a file or directory of the machine visible.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"readOnly"`
}

// Write writes the specification to a file.
func (s Spec) Write(path string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// Read reads a file that Write has written.
func Read(path string) (Spec, error) {
	var s Spec
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return Spec{}, fmt.Errorf("specification: %w", err)
	}
	return s, nil
}

// number returns the kernel's number of a capability, named as in a securityContext.
func number(capability string) (uint, error) {
	for i, name := range names {
		if name == strings.ToUpper(capability) {
			return uint(i), nil
		}
	}
	return 0, fmt.Errorf("capability %q: want one such as NET_ADMIN", capability)
}

// names are the capabilities of linux/capability.h by number.
var names = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP
	LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE
	SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME
	SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG
	WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)
