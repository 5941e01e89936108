// SPDX-License-Identifier: Apache-2.0

package sysctl

import (
	"strconv"
	"time"
)

// Conntrack is the section conntrack of the configuration: the size of the kernel's
// connection table, and its timeouts. A zero field keeps the kernel's value.
type Conntrack struct {
	// MaxPerCore is the number of connections per CPU, and Min the minimum for all
	// CPUs. Min has no effect without MaxPerCore.
	MaxPerCore, Min int
	// Timeouts are rounded down to whole seconds.
	TCPEstablished, TCPCloseWait, UDP, UDPStream time.Duration
	// TCPBeLiberal makes the kernel accept segments outside the window. False keeps
	// the kernel's setting.
	TCPBeLiberal bool
}

// maxCap bounds the number of connections: a table for more than a million wastes memory
// on a large machine with little traffic.
const maxCap = 1 << 20

// perBucket is the maximum number of connections per bucket of the hash table.
const perBucket = 4

// Max returns the number of connections for a number of CPUs; 0 keeps the kernel's. The
// cap applies before the minimum, so only a minimum exceeds it.
func (c Conntrack) Max(cpus int) int {
	if c.MaxPerCore <= 0 {
		return 0
	}
	scaled := c.MaxPerCore * cpus
	if scaled > maxCap {
		return maxCap
	}
	return max(scaled, c.Min)
}

// ApplyConntrack sets the given values, and returns its changes, even with an error. It stops at the first value that
// cannot be set; the error names the file and says what to do. After an error, the proxy does not start.
func (f Files) ApplyConntrack(c Conntrack) ([]Change, error) {
	changes, err := f.applySize(c)
	if err != nil {
		return changes, err
	}
	for _, setting := range c.settings() {
		if setting.value == 0 {
			continue
		}
		change, changed, err := f.ensure(setting.entry, strconv.Itoa(setting.value))
		if err != nil {
			return changes, err
		}
		if changed {
			changes = append(changes, change)
		}
	}
	return changes, nil
}

// applySize raises the maximum number of connections, and enlarges the hash table for it. Like kube-proxy v1.37, it
// never lowers either: another process may need the larger value.
func (f Files) applySize(c Conntrack) (changes []Change, err error) {
	size := c.Max(f.CPUs())
	if size == 0 {
		return nil, nil
	}
	const advice = "run privileged in the host's network namespace, or keep the kernel's size " +
		"(conntrack.maxPerCore: 0, --conntrack-max-per-core=0)"
	limit := entry{netfilter + "nf_conntrack_max", advice}
	if now, err := f.number(limit); err != nil || now < size {
		change, _, err := f.ensure(limit, strconv.Itoa(size))
		if err != nil {
			return nil, err
		}
		changes = append(changes, change)
	}
	hash := entry{"sys/module/nf_conntrack/parameters/hashsize", advice}
	buckets, err := f.number(hash)
	if err != nil || buckets >= size/perBucket {
		return changes, err
	}
	change, _, err := f.ensure(hash, strconv.Itoa(size/perBucket))
	if err != nil {
		return changes, err
	}
	return append(changes, change), nil
}

const netfilter = "proc/sys/net/netfilter/"

// setting is one value that does not depend on others; 0 means not set.
type setting struct {
	entry
	value int
}

func (c Conntrack) settings() []setting {
	timeout := func(file, field, flag string, d time.Duration) setting {
		advice := "run privileged, or keep the kernel's value (conntrack." + field + ": 0s, --conntrack-" + flag + "=0)"
		return setting{entry{netfilter + file, advice}, int(d / time.Second)}
	}
	all := []setting{
		timeout("nf_conntrack_tcp_timeout_established", "tcpEstablishedTimeout", "tcp-timeout-established", c.TCPEstablished),
		timeout("nf_conntrack_tcp_timeout_close_wait", "tcpCloseWaitTimeout", "tcp-timeout-close-wait", c.TCPCloseWait),
		timeout("nf_conntrack_udp_timeout", "udpTimeout", "udp-timeout", c.UDP),
		timeout("nf_conntrack_udp_timeout_stream", "udpStreamTimeout", "udp-timeout-stream", c.UDPStream),
	}
	if c.TCPBeLiberal {
		const advice = "run privileged, or keep the kernel's value (conntrack.tcpBeLiberal: false, --conntrack-tcp-be-liberal=false)"
		all = append(all, setting{entry{netfilter + "nf_conntrack_tcp_be_liberal", advice}, 1})
	}
	return all
}
