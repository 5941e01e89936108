package reduce

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestInternalTrafficPolicy(t *testing.T) {
	cluster, local := corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal
	tests := []struct {
		policy *corev1.ServiceInternalTrafficPolicy
		want   bool
	}{{nil, false}, {&cluster, false}, {&local, true}}
	for _, tt := range tests {
		spec, _ := Service(newService(func(o *corev1.Service) { o.Spec.InternalTrafficPolicy = tt.policy }))
		if spec.InternalLocal != tt.want {
			t.Errorf("%v: got %v", tt.policy, spec.InternalLocal)
		}
	}
}

func TestExternalTrafficPolicy(t *testing.T) {
	const local = corev1.ServiceExternalTrafficPolicyLocal
	tests := []struct {
		name        string
		kind        corev1.ServiceType
		externalIPs []string
		policy      corev1.ServiceExternalTrafficPolicy
		want        bool
	}{
		{"LoadBalancer", corev1.ServiceTypeLoadBalancer, nil, local, true},
		{"NodePort", corev1.ServiceTypeNodePort, nil, local, true},
		{"ClusterIP with external IPs", corev1.ServiceTypeClusterIP, []string{"192.0.2.99"}, local, true},
		{"an entry counts even if it cannot be used", corev1.ServiceTypeClusterIP, []string{"bad"}, local, true},
		{"ClusterIP without", corev1.ServiceTypeClusterIP, nil, local, false},
		{"no type means ClusterIP", "", nil, local, false},
		{"no type, external IPs", "", []string{"192.0.2.99"}, local, true},
		{"unknown type", "Odd", []string{"192.0.2.99"}, local, false},
		{"Cluster", corev1.ServiceTypeLoadBalancer, nil, corev1.ServiceExternalTrafficPolicyCluster, false},
		{"not set", corev1.ServiceTypeLoadBalancer, nil, "", false},
	}
	for _, tt := range tests {
		spec, _ := Service(newService(func(o *corev1.Service) {
			o.Spec.Type, o.Spec.ExternalIPs, o.Spec.ExternalTrafficPolicy = tt.kind, tt.externalIPs, tt.policy
		}))
		if spec.ExternalLocal != tt.want {
			t.Errorf("%s: got %v", tt.name, spec.ExternalLocal)
		}
	}
}

func TestHealthCheckNodePort(t *testing.T) {
	const path = "spec.healthCheckNodePort"
	const local, cluster = corev1.ServiceExternalTrafficPolicyLocal, corev1.ServiceExternalTrafficPolicyCluster
	tests := []struct {
		name   string
		kind   corev1.ServiceType
		policy corev1.ServiceExternalTrafficPolicy
		port   int32
		want   uint16
		warned []string
	}{
		{"opened", corev1.ServiceTypeLoadBalancer, local, 32000, 32000, nil},
		{"0 opens nothing", corev1.ServiceTypeLoadBalancer, local, 0, 0, []string{path}},
		{"out of range", corev1.ServiceTypeLoadBalancer, local, 70000, 0, []string{path}},
		{"policy Cluster", corev1.ServiceTypeLoadBalancer, cluster, 32000, 0, nil},
		{"NodePort", corev1.ServiceTypeNodePort, local, 32000, 0, nil},
		{"ClusterIP", corev1.ServiceTypeClusterIP, local, 32000, 0, nil},
	}
	for _, tt := range tests {
		spec, warnings := Service(newService(loadBalancer, func(o *corev1.Service) {
			o.Spec.Type, o.Spec.ExternalTrafficPolicy, o.Spec.HealthCheckNodePort = tt.kind, tt.policy, tt.port
		}))
		if spec.HealthCheckNodePort != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, spec.HealthCheckNodePort, tt.want)
		}
		checkWarnings(t, warnings, "Service ns1/svc1", tt.warned...)
	}
}

func TestAffinity(t *testing.T) {
	const path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
	timeout := func(seconds int32) *corev1.SessionAffinityConfig {
		return &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
	tests := []struct {
		name     string
		affinity corev1.ServiceAffinity
		config   *corev1.SessionAffinityConfig
		want     int
		warned   []string
	}{
		{"none", corev1.ServiceAffinityNone, nil, 0, nil},
		{"none, with a left-over timeout", corev1.ServiceAffinityNone, timeout(10), 0, nil},
		{"not set", "", timeout(10), 0, nil},
		{"unknown", "Cookie", timeout(10), 0, nil},
		{"client IP", corev1.ServiceAffinityClientIP, timeout(10), 10, nil},
		{"the longest", corev1.ServiceAffinityClientIP, timeout(86400), 86400, nil},
		{"no config", corev1.ServiceAffinityClientIP, nil, 10800, []string{path}},
		{"no client IP config", corev1.ServiceAffinityClientIP, &corev1.SessionAffinityConfig{}, 10800, []string{path}},
		{"no timeout", corev1.ServiceAffinityClientIP, &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{}}, 10800, []string{path}},
		{"too short", corev1.ServiceAffinityClientIP, timeout(0), 10800, []string{path}},
		{"negative", corev1.ServiceAffinityClientIP, timeout(-5), 10800, []string{path}},
		{"too long", corev1.ServiceAffinityClientIP, timeout(86401), 86400, []string{path}},
	}
	for _, tt := range tests {
		spec, warnings := Service(newService(func(o *corev1.Service) {
			o.Spec.SessionAffinity, o.Spec.SessionAffinityConfig = tt.affinity, tt.config
		}))
		if spec.AffinitySeconds != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, spec.AffinitySeconds, tt.want)
		}
		checkWarnings(t, warnings, "Service ns1/svc1", tt.warned...)
	}
}
