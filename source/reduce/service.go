package reduce

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/service"
)

// Service reduces a Service. The result is nil when it is not proxied: headless,
// without a ClusterIP, or an ExternalName, even one that still has a ClusterIP.
func Service(object *corev1.Service) (*service.Spec, []service.Warning) {
	spec := &object.Spec
	if spec.Type == corev1.ServiceTypeExternalName || !isAddress(spec.ClusterIP) {
		return nil, nil
	}
	n := &notes{kind: "Service", namespace: object.Namespace, name: object.Name}
	if object.Namespace == "" || object.Name == "" {
		n.add(field("metadata"), "namespace and name are required; the Service is ignored")
		return nil, n.warnings
	}
	return &service.Spec{
		Key: service.Key{
			Namespace: intern(object.Namespace),
			Name:      strings.Clone(object.Name),
		},
		Created:             object.CreationTimestamp.Time,
		ClusterIPs:          clusterIPs(n, spec),
		Ports:               servicePorts(n, spec.Ports),
		ExternalIPs:         externalIPs(n, spec.ExternalIPs),
		LoadBalancerVIPs:    loadBalancerVIPs(n, object.Status.LoadBalancer.Ingress),
		SourceRanges:        sourceRanges(n, spec.LoadBalancerSourceRanges),
		InternalLocal:       internalLocal(spec),
		ExternalLocal:       externalLocal(spec),
		HealthCheckNodePort: healthCheckNodePort(n, spec),
		AffinitySeconds:     affinitySeconds(n, spec),
		Scheduling:          scheduling(n, object.Annotations),
	}, n.warnings
}

// isAddress tells a ClusterIP from the two ways to say that there is none.
func isAddress(clusterIP string) bool {
	return clusterIP != "" && clusterIP != corev1.ClusterIPNone
}
