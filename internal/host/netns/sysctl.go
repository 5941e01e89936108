package netns

import (
	"os"
	"path/filepath"
	"strings"
)

// Sysctl sets a kernel parameter of the namespace, named with dots or slashes:
// net.ipv4.ip_forward, net/ipv4/conf/eth0.1/rp_filter.
func (n *Namespace) Sysctl(key, value string) error {
	return n.Sysctls(map[string]string{key: value})
}

// Sysctls sets several kernel parameters of the namespace, in no particular order; going there and back
// costs more than each of them. It stops at the first that fails.
func (n *Namespace) Sysctls(values map[string]string) error {
	return n.Do(func() error {
		for key, value := range values {
			path, err := n.sysctlPath(key)
			if err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte(value), 0); err != nil {
				return n.errorf("set %s to %q: %w", key, value, err)
			}
		}
		return nil
	})
}

// ReadSysctl returns a kernel parameter of the namespace without the final line end.
func (n *Namespace) ReadSysctl(key string) (string, error) {
	path, err := n.sysctlPath(key)
	if err != nil {
		return "", err
	}
	var value []byte
	err = n.Do(func() error {
		var err error
		value, err = os.ReadFile(path)
		return err
	})
	if err != nil {
		return "", n.errorf("read %s: %w", key, err)
	}
	return strings.TrimSuffix(string(value), "\n"), nil
}

// sysctlPath refuses what lies outside /proc/sys/net: the rest of the tree belongs to the machine.
//
// /proc/sys/net shows each *thread* its own namespace (net_ctl_root in the kernel's net/sysctl_net.c
// looks at the calling task), so the plain path is right inside Do; no /proc/thread-self is needed.
func (n *Namespace) sysctlPath(key string) (string, error) {
	if !strings.Contains(key, "/") {
		key = strings.ReplaceAll(key, ".", "/")
	}
	path := filepath.Join("/proc/sys", key)
	if !strings.HasPrefix(path, "/proc/sys/net/") {
		return "", n.errorf("kernel parameter %s is not under net, it belongs to the whole machine", key)
	}
	return path, nil
}
