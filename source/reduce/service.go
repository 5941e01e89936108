// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/service"
)

// Service reduces a Service. The result is nil when it is not proxied; see NotServed.
func (p Policy) Service(object *corev1.Service) (*service.Spec, []service.Warning) {
	spec := &object.Spec
	if NotServed(object) != "" {
		return nil, nil
	}
	n := &notes{kind: "Service", namespace: object.Namespace, name: object.Name}
	if object.Namespace == "" || object.Name == "" {
		n.add(field("metadata"), "the Service is ignored", "namespace and name are required")
		return nil, n.warnings
	}
	if !isName(object.Namespace) {
		n.add(field("metadata.namespace"), "the Service is ignored", notAName, object.Namespace)
		return nil, n.warnings
	}
	if !isName(object.Name) {
		n.add(field("metadata.name"), "the Service is ignored", notAName, object.Name)
		return nil, n.warnings
	}
	made := &service.Spec{
		Key: service.Key{
			Namespace: intern(object.Namespace),
			Name:      strings.Clone(object.Name),
		},
		Created:             object.CreationTimestamp.Time,
		ClusterIPs:          clusterIPs(n, spec),
		Ports:               servicePorts(n, spec.Ports),
		ExternalIPs:         p.externalIPs(n, spec.ExternalIPs),
		LoadBalancerVIPs:    p.loadBalancerVIPs(n, object.Status.LoadBalancer.Ingress),
		SourceRanges:        sourceRanges(n, spec.LoadBalancerSourceRanges),
		DenyRanges:          p.denyRanges(n, object.Annotations),
		NoEndpoints:         p.noEndpoints(n, object.Annotations),
		InternalLocal:       internalLocal(spec),
		ExternalLocal:       externalLocal(spec),
		HealthCheckNodePort: healthCheckNodePort(n, spec),
		AffinitySeconds:     affinitySeconds(n, spec),
		Scheduling:          p.scheduling(n, object.Annotations),
		Balancing:           p.balancing(n, object),
		Adaptation:          p.adaptation(n, object.Namespace, object.Annotations),
		Zones:               zonePolicy(n, object.Annotations),
		ProxyProtocol:       proxyProtocol(n, object.Annotations),
		FlowLog:             flowLog(n, object.Annotations),
		Drain:               p.drain(n, object.Annotations),
	}
	p.denyPorts(n, made)
	return made, n.warnings
}

// denyPorts marks the ports that the Service does not get at the addresses that it chose or was assigned.
func (p *Policy) denyPorts(n *notes, made *service.Spec) {
	outside := 0
	for _, family := range service.Families {
		outside += len(made.ExternalIPs[family]) + len(made.LoadBalancerVIPs[family])
	}
	for i := range made.Ports {
		port := &made.Ports[i]
		if outside > 0 && port.Protocol == service.TCP && slices.Contains(p.DeniedPorts, port.Port) {
			port.NotOutside = true
			n.add(field("spec.ports"), "not served at external IPs and load balancer IPs",
				"%d/tcp is a port of nodes (addresses.deniedPorts, or an address of Sluice)", port.Port)
		}
	}
}

// isAddress reports whether the Service has a ClusterIP: it is neither empty nor None.
func isAddress(clusterIP string) bool {
	return clusterIP != "" && clusterIP != corev1.ClusterIPNone
}

// clusterIPs finds the ClusterIP of each family. A Service that lists its
// families has its addresses in the same order; an object from before dual-stack has
// one address and no list of families.
func clusterIPs(n *notes, spec *corev1.ServiceSpec) service.PerFamily[netip.Addr] {
	var found service.PerFamily[netip.Addr]
	if len(spec.IPFamilies) == 0 {
		if addr, ok := parseAddr(spec.ClusterIP); ok {
			found[service.FamilyOf(addr)] = addr
		} else {
			n.add(field("spec.clusterIP"), "the Service is not served", "%q is not an IP address", spec.ClusterIP)
		}
		return found
	}
	for i, name := range spec.IPFamilies {
		family, ok := familyOf(name)
		if !ok {
			n.add(at("spec.ipFamilies", i), entrySkipped, "%q is not an IP family", name)
			continue
		}
		notServed := "the Service is not served over " + family.String()
		if i >= len(spec.ClusterIPs) || !isAddress(spec.ClusterIPs[i]) {
			n.add(at("spec.clusterIPs", i), notServed, "missing")
			continue
		}
		addr, ok := parseAddr(spec.ClusterIPs[i])
		switch {
		case !ok:
			n.add(at("spec.clusterIPs", i),
				notServed, "%q is not an IP address", spec.ClusterIPs[i])
		case service.FamilyOf(addr) != family:
			n.add(at("spec.clusterIPs", i),
				notServed, "%s is not an %s address, as spec.ipFamilies requires", addr, family)
		case !found[family].IsValid():
			found[family] = addr
		}
	}
	return found
}

// servicePorts reduces spec.ports, in API order. A name occurs once per protocol:
// it is how slices refer to a port.
func servicePorts(n *notes, ports []corev1.ServicePort) []service.Port {
	type identity struct {
		name     string
		protocol service.Protocol
	}
	reduced := make([]service.Port, 0, len(ports))
	seen := make(map[identity]bool, len(ports))
	for i := range ports {
		port, ok := servicePort(n, at("spec.ports", i), &ports[i])
		if !ok {
			continue
		}
		id := identity{port.Name, port.Protocol}
		if seen[id] {
			n.add(at("spec.ports", i),
				"the first port is kept and this one left out", "name %q and protocol %s occur before",
				port.Name, port.Protocol)
			continue
		}
		seen[id] = true
		reduced = append(reduced, port)
	}
	return reduced
}

// servicePort reduces one element of spec.ports. If the node port is not a port number, only the node port is left out.
func servicePort(n *notes, where path, port *corev1.ServicePort) (service.Port, bool) {
	if port.Name != "" && !isName(port.Name) {
		n.add(where.dot("name"), "the port is left out", notAName, port.Name)
		return service.Port{}, false
	}
	number, ok := portNumber(port.Port)
	if !ok {
		n.add(where.dot("port"), "the port is left out", "%d is not a port number (1 to 65535)", port.Port)
		return service.Port{}, false
	}
	transport, ok := protocol(port.Protocol)
	if !ok {
		n.add(where.dot("protocol"), "the port is left out", "%q is not one of TCP, UDP, SCTP", port.Protocol)
		return service.Port{}, false
	}
	nodePort, ok := portNumber(port.NodePort)
	if !ok && port.NodePort != 0 {
		n.add(where.dot("nodePort"), "the port gets no node port", "%d is not a port number (1 to 65535)", port.NodePort)
	}
	return service.Port{
		Name:     intern(port.Name),
		Protocol: transport,
		Port:     number,
		NodePort: nodePort,
	}, true
}

// entrySkipped is the effect of a warning about an entry of a list.
const entrySkipped = "the entry is skipped"

// externalIPs reduces spec.externalIPs. API servers have accepted anything, so blank
// entries are skipped without a warning.
func (p *Policy) externalIPs(n *notes, texts []string) service.PerFamily[[]netip.Addr] {
	var found each[netip.Addr]
	for i, text := range texts {
		addr, ok := parseAddr(text)
		switch where := at("spec.externalIPs", i); {
		case ok && p.admits(n, where, entrySkipped, addr):
			found.add(service.FamilyOf(addr), addr)
		case !ok && strings.TrimSpace(text) != "":
			n.add(where, entrySkipped, "%q is not an IP address", text)
		}
	}
	return found.once
}

// loadBalancerVIPs reduces status.loadBalancer.ingress. Entries in mode Proxy are
// left to the balancer: traffic from inside the cluster must reach it.
func (p *Policy) loadBalancerVIPs(n *notes, ingress []corev1.LoadBalancerIngress) service.PerFamily[[]netip.Addr] {
	const list = "status.loadBalancer.ingress"
	var found each[netip.Addr]
	for i := range ingress {
		entry := &ingress[i]
		if entry.IP == "" {
			continue
		}
		if mode := entry.IPMode; mode != nil && *mode != corev1.LoadBalancerIPModeVIP {
			if *mode != corev1.LoadBalancerIPModeProxy {
				n.add(at(list, i).dot("ipMode"), entrySkipped, "%q is not one of VIP, Proxy", *mode)
			}
			continue
		}
		addr, ok := parseAddr(entry.IP)
		switch where := at(list, i).dot("ip"); {
		case !ok:
			n.add(where, entrySkipped, "%q is not an IP address", entry.IP)
		case p.admits(n, where, entrySkipped, addr):
			found.add(service.FamilyOf(addr), addr)
		}
	}
	return found.once
}

// sourceRanges reduces spec.loadBalancerSourceRanges. A family without a usable
// range is open to everyone, and so is one in which a range covers everyone.
func sourceRanges(n *notes, texts []string) service.PerFamily[[]netip.Prefix] {
	const list = "spec.loadBalancerSourceRanges"
	var found each[netip.Prefix]
	var everyone service.PerFamily[bool]
	usable, rejected := 0, 0
	for i, text := range texts {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		prefix, ok := parsePrefix(text)
		if !ok {
			rejected++
			n.add(at(list, i), entrySkipped, "%q is not a CIDR", text)
			continue
		}
		usable++
		family := service.FamilyOf(prefix.Addr())
		everyone[family] = everyone[family] || prefix.Bits() == 0
		found.add(family, prefix)
	}
	if usable == 0 && rejected > 0 {
		n.add(field(list), "every source is allowed", "no entry can be used")
	}
	for _, family := range service.Families {
		if everyone[family] {
			found.once[family] = nil
		}
	}
	return found.once
}

// The bounds of spec.sessionAffinityConfig.clientIP.timeoutSeconds.
const (
	affinityDefaultSeconds = int(corev1.DefaultClientIPServiceAffinitySeconds)
	affinityMaxSeconds     = 86400
)

func internalLocal(spec *corev1.ServiceSpec) bool {
	policy := spec.InternalTrafficPolicy
	return policy != nil && *policy == corev1.ServiceInternalTrafficPolicyLocal
}

// externalLocal reports whether externalTrafficPolicy: Local is set and counts.
// It counts for Services that are externally accessible by type, even if the entries of externalIPs cannot be used.
func externalLocal(spec *corev1.ServiceSpec) bool {
	if spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return false
	}
	switch spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		return true
	case corev1.ServiceTypeClusterIP, "":
		return len(spec.ExternalIPs) > 0
	default:
		return false
	}
}

func healthCheckNodePort(n *notes, spec *corev1.ServiceSpec) uint16 {
	if spec.Type != corev1.ServiceTypeLoadBalancer || !externalLocal(spec) {
		return 0
	}
	port, ok := portNumber(spec.HealthCheckNodePort)
	if !ok {
		n.add(field("spec.healthCheckNodePort"),
			"the load balancer's health checks are not answered", "%d is not a port number (1 to 65535)",
			spec.HealthCheckNodePort)
	}
	return port
}

func affinitySeconds(n *notes, spec *corev1.ServiceSpec) int {
	if spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	timeout := field("spec.sessionAffinityConfig.clientIP.timeoutSeconds")
	usesDefault := fmt.Sprintf("%d seconds are used", affinityDefaultSeconds)
	config := spec.SessionAffinityConfig
	if config == nil || config.ClientIP == nil || config.ClientIP.TimeoutSeconds == nil {
		n.add(timeout, usesDefault, "missing")
		return affinityDefaultSeconds
	}
	switch seconds := int(*config.ClientIP.TimeoutSeconds); {
	case seconds < 1:
		n.add(timeout, usesDefault, "%d is too short: at least 1", seconds)
		return affinityDefaultSeconds
	case seconds > affinityMaxSeconds:
		n.add(timeout, fmt.Sprintf("%d seconds are used", affinityMaxSeconds), "%d is too long: at most %d", seconds, affinityMaxSeconds)
		return affinityMaxSeconds
	default:
		return seconds
	}
}

// The annotations by which a Service asks for another IPVS scheduler than the
// node's; see docs/design/ipvs-userspace.md.
const (
	annotationScheduler = "sluice.dev/ipvs-scheduler"
	annotationFlags     = "sluice.dev/ipvs-flags"
)

// Schedulers are the kernel's schedulers that a Policy may allow.
var Schedulers = []string{"dh", "fo", "lblc", "lblcr", "lc", "mh", "nq", "ovf", "rr", "sed", "sh", "wlc", "wrr"}

// hashing are the schedulers that have flags: a port flag and a fallback flag,
// each with the scheduler's name in front.
var hashing = []string{"mh", "sh"}

const (
	flagPorts    = "-port"
	flagFallback = "-fallback"
)

// scheduling reduces the annotations. If either cannot be used, both are ignored and
// the node's scheduler is used.
func (p *Policy) scheduling(n *notes, annotations map[string]string) service.Scheduling {
	scheduler, asked := annotations[annotationScheduler]
	flags, flagged := annotations[annotationFlags]
	if !asked && !flagged {
		return service.Scheduling{}
	}
	scheduler = strings.TrimSpace(scheduler)
	switch {
	case !asked:
		n.add(annotation(annotationFlags), "the node's scheduler is used", "%q needs the annotation %s (%s)",
			flags, annotationScheduler, strings.Join(hashing, " or "))
		return service.Scheduling{}
	case !slices.Contains(Schedulers, scheduler):
		n.add(annotation(annotationScheduler), "the node's scheduler is used", "unknown scheduler %q; %s",
			scheduler, p.choices())
		return service.Scheduling{}
	case !slices.Contains(p.Schedulers, scheduler):
		n.add(annotation(annotationScheduler), "the node's scheduler is used", "%s is not in ipvs.serviceSchedulers; %s",
			scheduler, p.choices())
		return service.Scheduling{}
	}
	wanted := service.Scheduling{Scheduler: intern(scheduler)}
	if !flagged {
		// The node's mh scheduler includes ports as well.
		wanted.Ports = scheduler == "mh"
		return wanted
	}
	return schedulingFlags(n, wanted, flags)
}

// choices says which schedulers a Service may choose.
func (p *Policy) choices() string {
	if len(p.Schedulers) == 0 {
		return "no scheduler may be chosen"
	}
	return "must be one of " + strings.Join(p.Schedulers, ", ")
}

// schedulingFlags adds the flags of the annotation to a scheduling.
func schedulingFlags(n *notes, wanted service.Scheduling, flags string) service.Scheduling {
	for flag := range strings.SplitSeq(flags, ",") {
		switch flag = strings.TrimSpace(flag); {
		case flag == "":
		case !slices.Contains(hashing, wanted.Scheduler):
			n.add(annotation(annotationFlags), "the node's scheduler is used", "%q: scheduler %s does not support flags; only %s do",
				flags, wanted.Scheduler, strings.Join(hashing, " and "))
			return service.Scheduling{}
		case flag == wanted.Scheduler+flagPorts:
			wanted.Ports = true
		case flag == wanted.Scheduler+flagFallback:
			wanted.Fallback = true
		default:
			n.add(annotation(annotationFlags), "the node's scheduler is used", "%q: unknown flag %q of scheduler %s; use %s",
				flags, flag, wanted.Scheduler, wanted.Scheduler+flagPorts+", "+wanted.Scheduler+flagFallback)
			return service.Scheduling{}
		}
	}
	return wanted
}

// annotationProxyProtocol is the annotation by which a Service asks that its endpoints be told of the
// client, and proxyProtocolVersion its only value; see docs/adr/0038-userspace.md.
const (
	annotationProxyProtocol = "sluice.dev/proxy-protocol"
	proxyProtocolVersion    = "v2"
)

func proxyProtocol(n *notes, annotations map[string]string) bool {
	version, asked := annotations[annotationProxyProtocol]
	if !asked {
		return false
	}
	if strings.TrimSpace(version) != proxyProtocolVersion {
		n.add(annotation(annotationProxyProtocol), "endpoints do not learn the client's address", "%q is no version that can be sent; use %s",
			version, proxyProtocolVersion)
		return false
	}
	return true
}

// annotationFlowLog is the annotation by which a Service asks for records of its connections.
const annotationFlowLog = "sluice.dev/flow-log"

func flowLog(n *notes, annotations map[string]string) bool {
	text, asked := annotations[annotationFlowLog]
	switch strings.TrimSpace(text) {
	case "true":
		return true
	case "false":
		return false
	}
	if asked {
		n.add(annotation(annotationFlowLog), "connections are not logged", "%q: must be true or false", text)
	}
	return false
}

// annotationDrain is the annotation by which a Service limits connections to endpoints that have left.
const annotationDrain = "sluice.dev/drain"

// drain reduces the annotation. Without a usable one, the drain deadline of the node applies.
func (p *Policy) drain(n *notes, annotations map[string]string) service.Drain {
	node := service.Drain{Limited: p.Drain > 0, After: p.Drain}
	text, asked := annotations[annotationDrain]
	if !asked {
		return node
	}
	after, err := time.ParseDuration(strings.TrimSpace(text))
	if err != nil || after < 0 || after > service.DrainMax {
		n.add(annotation(annotationDrain), "the drain deadline of the node is used", "%q: must be a duration from 0s to %.0fh, for example 30s",
			text, service.DrainMax.Hours())
		return node
	}
	return service.Drain{Limited: true, After: after}
}

// annotation is the path of an annotation:
// "metadata.annotations[sluice.dev/ipvs-flags]".
func annotation(name string) path { return field("metadata.annotations[" + name + "]") }
