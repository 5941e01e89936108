package config

import (
	"net/netip"
	"slices"
	"strings"
)

// schedulers are those of the kernel's IPVS by their names (net/netfilter/ipvs, as of
// Linux 6.18). Which of them a kernel has is found out at the start.
var schedulers = []string{"dh", "fo", "lblc", "lblcr", "lc", "mh", "nq", "ovf", "rr", "sed", "sh", "twos", "wlc", "wrr"}

func checkScheduler(name string, found *findings) {
	if name != "" && !slices.Contains(schedulers, name) {
		found.wrong("ipvs.scheduler", name, "one of %s, or nothing for rr", strings.Join(schedulers, ", "))
	}
}

// Scheduler is the scheduler of IPVS for Services that ask for none.
func (c *Config) Scheduler() string {
	if name := c.KubeProxy.IPVS.Scheduler; name != "" {
		return name
	}
	return "rr"
}

// ExcludedCIDRs are the ranges of virtual servers that are somebody else's.
func (c *Config) ExcludedCIDRs() (ranges []netip.Prefix) {
	for _, text := range c.KubeProxy.IPVS.ExcludeCIDRs {
		if r, ok := parseRange(text); ok {
			ranges = append(ranges, r)
		}
	}
	return ranges
}
