// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/internal/daemon/peer"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
)

// capabilities reports which of the relevant capabilities this process has.
func (p *preflight) capabilities() {
	held, err := setup.Capabilities()
	if err != nil {
		p.add("capabilities", Fail, "", "%v", err)
		return
	}
	var has []string
	for _, c := range []struct {
		number uint
		name   string
		need   func() (Result, string)
	}{
		{unix.CAP_NET_ADMIN, "NET_ADMIN", func() (Result, string) { return Fail, "no rule can be written without it" }},
		{unix.CAP_NET_RAW, "NET_RAW", p.needRaw},
		{unix.CAP_NET_BIND_SERVICE, "NET_BIND_SERVICE", p.needBind},
		{unix.CAP_SYS_RESOURCE, "SYS_RESOURCE", p.needResource},
	} {
		if held&(1<<c.number) != 0 {
			has = append(has, c.name)
			continue
		}
		result, why := c.need()
		do := ""
		if result != Info {
			do = "run as root, or add " + c.name + " to the container's capabilities"
		}
		p.add("capabilities", result, do, "lacks %s: %s", c.name, why)
	}
	if len(has) > 0 {
		p.add("capabilities", OK, "", "has %s", strings.Join(has, ", "))
	}
}

// needRaw returns the effect of a missing CAP_NET_RAW.
func (p *preflight) needRaw() (Result, string) {
	if mode := setup.ModeNamed(p.options.KubeProxy.Mode); mode.WithoutIPTables {
		return Info, "mode " + string(mode.Name) + " does not need it"
	}
	return Warn, "the legacy variant of iptables works through a raw socket"
}

// needBind returns the effect of a missing CAP_NET_BIND_SERVICE.
func (p *preflight) needBind() (Result, string) {
	if setup.ModeNamed(p.options.KubeProxy.Mode).Forwards {
		return Warn, "Services with ports below 1024 are quarantined (net.ipv4.ip_unprivileged_port_start)"
	}
	return Info, "only userspace mode listens at ports of Services"
}

// needResource returns the effect of a missing CAP_SYS_RESOURCE.
func (p *preflight) needResource() (Result, string) {
	now, err := os.ReadFile("/proc/self/oom_score_adj")
	score, parseErr := strconv.Atoi(strings.TrimSpace(string(now)))
	want := p.options.KubeProxy.OOMScoreAdj
	if errors.Join(err, parseErr) == nil && (want == nil || int(*want) >= score) {
		return Info, "the OOM score adjustment need not be lowered"
	}
	return Info, "the OOM score adjustment remains unchanged, " + strings.TrimSpace(string(now))
}

// others reports which other proxies run in this network namespace. A kube-proxy under another name, or one that cannot
// be seen, is found by its addresses; see addresses.
func (p *preflight) others() {
	found := false
	holder := peer.Peek()
	if holder != nil {
		found = true
		if holder.ForeignProcess {
			p.add("other proxies", Warn,
				"identify it: it cannot be a proxy, and two proxies would not notice each other",
				"the lock %s is held by %s", peer.LockName, holder)
		} else {
			p.add("other proxies", OK, "",
				"%s serves this node; a second one waits for its end, and takes over", holder)
		}
	}
	for _, other := range peer.KubeProxies() {
		if holder != nil && other.PID == holder.PID {
			continue // a Sluice under this name
		}
		found = true
		p.add("other proxies", Warn, "stop it before or right after the start: both would write rules", "%s", other)
	}
	if !found {
		p.add("other proxies", OK, "", "none")
	}
}

// mounts checks the files that are shared with the host: the lock of iptables, and the state.
func (p *preflight) mounts() {
	if p.backend.Mode.WithoutIPTables {
		p.add("xtables lock", Info, "", "not needed in %s mode", p.backend.Mode.Name)
	} else {
		p.lock()
	}
	dir := p.options.Sluice.State.Dir
	const effect = "previous kernel settings cannot be recorded, so a cleanup does not restore them"
	if err := writable(dir); err != nil {
		p.add("state", Warn, "mount the host's "+dir+", or name another directory (state.dir, --sluice-state-dir)",
			"%s cannot be written: %v; %s", dir, err, effect)
		return
	}
	switch shared, err := iptkernel.SharedWithHost(dir); {
	case err != nil:
		p.add("state", Info, "", "%s can be written; cannot %v", dir, err)
	case !shared:
		p.add("state", Warn, "mount the host's "+dir+" into the container",
			"%s is not the host's: the record of previous kernel settings ends with the container", dir)
	default:
		p.add("state", OK, "", "%s can be written, and appears to be the host's", dir)
	}
}

// lock checks the lock of iptables. Only the legacy variant cannot do without it.
func (p *preflight) lock() {
	path := iptkernel.LockPath()
	file, err := os.Open(path)
	if err == nil {
		err = file.Close()
	} else if errors.Is(err, fs.ErrNotExist) {
		err = writable(path) // the first process that locks it makes it
	}
	if err != nil {
		result := Warn
		if p.backend.Variant == iptkernel.Legacy {
			result = Fail
		}
		p.add("xtables lock", result, "mount the host's file", "%s cannot be opened: %v", path, err)
		return
	}
	switch shared, err := iptkernel.LockShared(); {
	case err != nil:
		p.add("xtables lock", Info, "", "%s can be used; cannot %v", path, err)
	case shared:
		p.add("xtables lock", OK, "", "%s can be used, and appears to be the host's", path)
	} // otherwise, the check of the mode warns
}

// writable reports whether this process may write a path, or make it. It tries neither.
func writable(path string) error {
	err := unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS)
	if errors.Is(err, unix.ENOENT) {
		err = unix.Faccessat(unix.AT_FDCWD, filepath.Dir(path), unix.W_OK, unix.AT_EACCESS)
	}
	return err
}
