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
		"kube-api-content-type", "sluice-node-wait", "sluice-gate-wait"}},
	{"Rules, in all modes", []string{"proxy-mode", "cluster-cidr", "detect-local-mode", "pod-bridge-interface",
		"pod-interface-name-prefix", "nodeport-addresses", "masquerade-all", "sluice-objects-max",
		"sluice-denied-addresses", "sluice-denied-ports", "sluice-external-ips-in-service-cidr", "sluice-balancing-seed", "sluice-balancing-drain-deadline", "sluice-balancing-observe-connections"}},
	{"nftables and iptables modes", []string{"sluice-nftables-localhost-nodeports", "sluice-nftables-offload", "sluice-traffic-endpoints", "iptables-localhost-nodeports",
		"iptables-masquerade-bit", "sluice-iptables-variant"}},
	{"IPVS mode", []string{"ipvs-scheduler", "ipvs-exclude-cidrs", "ipvs-strict-arp", "ipvs-tcp-timeout", "ipvs-tcpfin-timeout",
		"ipvs-udp-timeout", "sluice-ipvs-drain-deadline", "sluice-ipvs-service-schedulers"}},
	{"Userspace mode", []string{"sluice-userspace-balancing", "sluice-userspace-access-log", "sluice-userspace-expose-host-ports",
		"sluice-userspace-answer-arp", "sluice-userspace-connections-per-client"}},
	{"Pace of writes and audits", []string{"iptables-sync-period", "iptables-min-sync-period", "ipvs-sync-period",
		"ipvs-min-sync-period", "sluice-min-interval", "sluice-max-delay", "sluice-max-write-share", "sluice-audit-interval",
		"sluice-backoff-min", "sluice-backoff-max", "sluice-message-deadline"}},
	{"Connection tracking", []string{"conntrack-max-per-core", "conntrack-min", "conntrack-tcp-timeout-established",
		"conntrack-tcp-timeout-close-wait", "conntrack-tcp-be-liberal", "conntrack-udp-timeout", "conntrack-udp-timeout-stream",
		"sluice-conntrack-batch-window", "sluice-traffic-accounting", "sluice-traffic-flow-log", "sluice-traffic-flow-log-file"}},
	{"Health, metrics and inspection", []string{"healthz-bind-address", "metrics-bind-address", "bind-address-hard-fail", "profiling",
		"show-hidden-metrics-for-version", "sluice-metrics-services-max", "sluice-metrics-hosts", "sluice-self-test", "sluice-healthz-endpoints", "sluice-healthz-probe-address", "sluice-ui",
		"sluice-security-cert-file", "sluice-security-key-file", "sluice-security-self-signed", "sluice-security-client-ca-file",
		"sluice-security-authorization", "sluice-security-inspection", "sluice-inspection-bind-address", "sluice-tracing-endpoint",
		"sluice-tracing-sampling-rate-per-million", "sluice-tracing-slow-threshold", "socket", "sluice-socket"}},
	{"Logs", []string{"v", "log-level", "log-format", "logging-format", "vmodule", "log-text-split-stream", "log-json-split-stream"}},
	{"Process", []string{"feature-gates", "oom-score-adj", "sluice-state-dir", "sluice-reload"}},
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
