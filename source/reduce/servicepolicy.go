package reduce

import (
	corev1 "k8s.io/api/core/v1"
)

// The bounds of spec.sessionAffinityConfig.clientIP.timeoutSeconds.
const (
	affinityDefaultSeconds = int(corev1.DefaultClientIPServiceAffinitySeconds)
	affinityMaxSeconds     = 86400
)

func internalLocal(spec *corev1.ServiceSpec) bool {
	policy := spec.InternalTrafficPolicy
	return policy != nil && *policy == corev1.ServiceInternalTrafficPolicyLocal
}

// externalLocal tells whether externalTrafficPolicy: Local is set and counts.
// It does for Services that are externally accessible by type; whether the
// entries of externalIPs can be used is not asked.
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
			"%d is not a port number; the load balancer's health checks are not answered",
			spec.HealthCheckNodePort)
	}
	return port
}

func affinitySeconds(n *notes, spec *corev1.ServiceSpec) int {
	if spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	timeout := field("spec.sessionAffinityConfig.clientIP.timeoutSeconds")
	config := spec.SessionAffinityConfig
	if config == nil || config.ClientIP == nil || config.ClientIP.TimeoutSeconds == nil {
		n.add(timeout, "missing; %d seconds are used", affinityDefaultSeconds)
		return affinityDefaultSeconds
	}
	switch seconds := int(*config.ClientIP.TimeoutSeconds); {
	case seconds < 1:
		n.add(timeout, "%d is too short; %d seconds are used", seconds, affinityDefaultSeconds)
		return affinityDefaultSeconds
	case seconds > affinityMaxSeconds:
		n.add(timeout, "%d is too long; %d seconds are used", seconds, affinityMaxSeconds)
		return affinityMaxSeconds
	default:
		return seconds
	}
}
