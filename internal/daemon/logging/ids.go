// SPDX-License-Identifier: Apache-2.0

package logging

import (
	"maps"
	"strings"

	"go.uber.org/zap/zapcore"
)

// idKey is the field that identifies a message at WARN or ERROR. Alerts match it: a message may be
// reworded, its ID stays.
const idKey = "id"

// ids are the IDs of all messages that Sluice logs at WARN or ERROR. docs/logs.md explains them.
var ids = map[string]string{
	"cannot record all connections; retrying":                                                  "flows-unrecorded",
	"cannot export traces; dropping them":                                                      "traces-failed",
	"cannot write the flow log; retrying":                                                      "flow-log-failed",
	"failed to process Service; restarting its actor":                                          "actor-failed",
	"actor hung; replaced it":                                                                  "actor-hung",
	"actor parked after repeated failures":                                                     "actor-parked",
	"actor did not stop; shutting down without it":                                             "actor-unstopped",
	"listen address already in use; retrying":                                                  "address-taken",
	"optional API resource is not available":                                                   "api-resource-missing",
	"cannot read from the API server; using the last known state":                              "api-unreachable",
	"Service addresses may answer ARP requests on this node":                                   "arp-answers",
	"audit failed; retrying":                                                                   "audit-failed",
	"rejected invalid configuration file; keeping the previous configuration":                  "configuration-rejected",
	"configuration warning":                                                                    "configuration-warning",
	"TCP connection limit reached; resetting new connections":                                  "connection-limit",
	"cannot check callers; refusing them":                                                      "review-failed",
	"cannot load certificates; keeping the last valid ones":                                    "certificate-invalid",
	"cannot offload TCP connections to Services":                                               "offload-failed",
	"cannot count packets and bytes of connections":                                            "accounting-failed",
	"connection table under pressure":                                                          "conntrack-pressure",
	"cannot read the connection table; retrying":                                               "conntrack-unreadable",
	"cannot delete stale conntrack entries; retrying":                                          "conntrack-cleanup-failed",
	"failed to load connection tracking":                                                       "conntrack-missing",
	"cannot read connections of a draining endpoint; it drains until the deadline":             "drain-unreadable",
	"endpoint address is not allowed; not connecting to it":                                    "endpoint-denied",
	"starting first write without some Services; they were not ready in time":                  "first-write-incomplete",
	"FORWARD policy DROP may block Service traffic in nftables mode":                           "forward-drop",
	"failed to forward connection":                                                             "forward-failed",
	"cannot open health-check node port; retrying":                                             "health-port-failed",
	"health-check node port stopped listening; retrying":                                       "health-port-stopped",
	"health server failed; retrying":                                                           "health-server-failed",
	"host processes are reachable at Service addresses (userspace.exposeHostPorts)":            "host-ports-exposed",
	"cannot serve the inspection socket; retrying":                                             "inspection-failed",
	"both iptables variants contain rules":                                                     "iptables-both-variants",
	"the unused iptables variant still contains Service rules":                                 "iptables-other-variant",
	"connections that reuse a source port may be delayed by one second":                        "ipvs-port-reuse",
	"IPVS set is nearly full":                                                                  "ipvs-set-full",
	"failed to set IPVS timeouts; keeping the current values":                                  "ipvs-timeouts-failed",
	"failed to remove rules of another mode; they still affect traffic":                        "leftover-rules",
	"failed to forward a node port connection on localhost":                                    "localhost-forward-failed",
	"rejected duplicate object in manifest; another file defines it":                           "manifest-duplicate",
	"changed configuration is not applied":                                                     "configuration-held",
	"rejected invalid manifest; keeping its last valid content":                                "manifest-rejected",
	"manifest watch lost events; rereading all files":                                          "manifest-watch-lost",
	"inspection server failed; retrying":                                                       "inspection-server-failed",
	"metrics server failed; retrying":                                                          "metrics-server-failed",
	"userspace mode does not enforce NetworkPolicy for connections to Services":                "networkpolicy-unenforced",
	"mode not set; using iptables because the kernel lacks features required by nftables mode": "nftables-unavailable",
	"running without the proxy lock; a second proxy would not be detected":                     "no-lock",
	"Node object deleted; using its last known state":                                          "node-deleted",
	"kernel rejected node-wide rules; retrying":                                                "node-rules-rejected",
	"no Node object matches this node; its zone and addresses are unknown":                     "node-unknown",
	"ignored invalid field in API object":                                                      "object-invalid",
	"kernel setting changed by another process; restored it":                                   "setting-restored",
	"cannot read what other processes set on this node; retrying":                              "surroundings-unreadable",
	"rules changed by another process; restoring them":                                         "rules-changed",
	"rules changed repeatedly by another process; delaying repair":                             "rules-fought",
	"failed to start part of the sandbox network":                                              "sandbox-incomplete",
	"failed to tear down the sandbox network":                                                  "sandbox-teardown-failed",
	"self-test failed; connections through the rules do not arrive":                            "self-test-failed",
	"Service quarantined: rules rejected":                                                      "service-rejected",
	"Service address conflict; another Service owns the address":                               "service-shadowed",
	"Service object limit exceeded; leaving out some of its frontends":                         "service-too-large",
	"Service quarantined: all writes of its rules failed":                                      "service-unwritable",
	"UDP session limit reached; evicting the least active sessions":                            "session-limit",
	"cannot record original sysctl values; cleanup will not restore them":                      "sysctl-record-failed",
	"failed to restore sysctl values of a previous configuration":                              "sysctl-restore-failed",
	"too many connections to observe; a sample counts":                                         "connections-sampled",
	"cannot observe or delete connections; failing endpoints stay in use":                      "connections-unobserved",
	"cannot watch for rule changes; relying on periodic audits":                                "watch-failed",
	"batch write failed; retrying":                                                             "write-failed",
	"xtables lock is not shared with the host; concurrent iptables changes are possible":       "xtables-lock-private",
}

// ID returns the ID of a message at WARN or ERROR; "http" for those of Go's HTTP server, and empty
// for unknown messages.
func ID(message string) string {
	if strings.HasPrefix(message, "http: ") {
		return "http"
	}
	return ids[message]
}

// Messages returns the messages at WARN and ERROR with their IDs, for the documentation.
func Messages() map[string]string { return maps.Clone(ids) }

// identify returns the field with the ID of an entry, if it has one.
func identify(entry zapcore.Entry) []zapcore.Field {
	if id := ID(entry.Message); id != "" && entry.Level >= zapcore.WarnLevel {
		return []zapcore.Field{{Key: idKey, Type: zapcore.StringType, String: id}}
	}
	return nil
}
