// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"

	"github.com/spf13/pflag"
)

// Group is a heading of the help, with the flags below it.
type Group struct {
	Title string
	Flags *pflag.FlagSet
}

// heading names the flags below it.
type heading struct {
	title string
	names []string
}

// headings are in the order of the help.
var headings = []heading{
	{"General", []string{"config", "manifests", "sandbox", "test-pods", "family", "write-config-to", "init-only", "cleanup",
		"force", "version", "help"}},
	{"Cluster and node", []string{"kubeconfig", "master", "hostname-override", "bind-address", "kube-api-qps", "kube-api-burst",
		"kube-api-content-type"}},
	{"Rules, in all modes", []string{"proxy-mode", "cluster-cidr", "detect-local-mode", "pod-bridge-interface",
		"pod-interface-name-prefix", "nodeport-addresses", "masquerade-all"}},
	{"iptables and userspace modes", []string{"iptables-localhost-nodeports", "iptables-masquerade-bit"}},
	{"IPVS mode", []string{"ipvs-scheduler", "ipvs-exclude-cidrs", "ipvs-strict-arp", "ipvs-tcp-timeout", "ipvs-tcpfin-timeout",
		"ipvs-udp-timeout"}},
	{"Pace of writes and audits", []string{"iptables-sync-period", "iptables-min-sync-period", "ipvs-sync-period",
		"ipvs-min-sync-period"}},
	{"Connection tracking", []string{"conntrack-max-per-core", "conntrack-min", "conntrack-tcp-timeout-established",
		"conntrack-tcp-timeout-close-wait", "conntrack-tcp-be-liberal", "conntrack-udp-timeout", "conntrack-udp-timeout-stream"}},
	{"Health, metrics and inspection", []string{"healthz-bind-address", "metrics-bind-address", "bind-address-hard-fail", "profiling",
		"show-hidden-metrics-for-version", "sluice-ui", "socket"}},
	{"Logs", []string{"v", "logging-format", "vmodule", "log-text-split-stream", "log-json-split-stream"}},
	{"Process", []string{"feature-gates", "oom-score-adj", "sluice-state-dir"}},
	{"Accepted for compatibility (no effect)", []string{"config-sync-period", "log-flush-frequency", "log-text-info-buffer-size",
		"log-json-info-buffer-size", "machine-id-file", "boot-id-file"}},
}

// otherFlags is the heading of flags without a group.
const otherFlags = "Other flags"

// Groups returns the flags of a command under headings, without those that are deprecated.
func Groups(all *pflag.FlagSet) (grouped []Group) {
	rest := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.VisitAll(func(f *pflag.Flag) {
		if !slices.ContainsFunc(headings, func(h heading) bool { return slices.Contains(h.names, f.Name) }) {
			rest.AddFlag(f)
		}
	})
	for _, h := range headings {
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		set.SortFlags = false
		for _, name := range h.names {
			if f := all.Lookup(name); f != nil {
				set.AddFlag(f)
			}
		}
		grouped = append(grouped, Group{h.title, set})
	}
	grouped = append(grouped, Group{otherFlags, rest})
	return slices.DeleteFunc(grouped, func(g Group) bool { return !g.Flags.HasAvailableFlags() })
}
