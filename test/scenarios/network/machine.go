package network

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// masquerade hides files of the machine behind others, and then becomes another
// program. It is run in a mount namespace of its own.
const masquerade = `mount --bind "$1" /sys/devices/system/cpu
mount --bind "$2" /proc/sys/net/netfilter/nf_conntrack_max
mount --bind "$3" /sys/module/nf_conntrack/parameters/hashsize
shift 3
exec "$@"`

// TableSize tells which size of the kernel's table of connections the proxy asks for
// on a machine with a number of processors, with its own defaults: in place of the
// files of /proc and /sys it finds others.
func (w *World) TableSize(ctx context.Context, processors int) (string, error) {
	dir, err := os.MkdirTemp(w.options.Dir, "machine-")
	if err != nil {
		return "", err
	}
	cpus, size, hash := filepath.Join(dir, "cpu"), filepath.Join(dir, "max"), filepath.Join(dir, "hashsize")
	for i := range processors {
		if err := os.MkdirAll(filepath.Join(cpus, fmt.Sprintf("cpu%d", i), "topology"), 0o755); err != nil {
			return "", err
		}
	}
	for _, file := range []string{size, hash} {
		if err := os.WriteFile(file, []byte("4096\n"), 0o600); err != nil {
			return "", err
		}
	}
	binary, err := filepath.Abs(w.options.Binary)
	if err != nil {
		return "", err
	}
	if _, err := w.Run(ctx, "unshare", "--mount", "--propagation", "private", "sh", "-e", "-c", masquerade, "sh", cpus, size, hash,
		binary, "proxy", "--init-only", "--proxy-mode="+w.options.Mode, "--sluice-state-dir="+filepath.Join(dir, "state")); err != nil {
		return "", err
	}
	text, err := os.ReadFile(size)
	return strings.TrimSpace(string(text)), err
}
