// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// serviceFields are the keys of the statement service, with the functions that set them.
var serviceFields = map[string]func(s *corev1.Service, value string) error{
	"type":        setType,
	"ports":       setPorts,
	"itp":         setInternalPolicy,
	"etp":         setExternalPolicy,
	"affinity":    setAffinity,
	"ranges":      setRanges,
	"external":    setExternalIPs,
	"ingress":     setIngress,
	"clusterips":  setClusterIPs,
	"families":    setFamilies,
	"labels":      func(s *corev1.Service, v string) error { return setPairs(&s.Labels, v) },
	"annotations": func(s *corev1.Service, v string) error { return setPairs(&s.Annotations, v) },
	"deny":        setDenied,
	"health":      setHealthPort,
}

func keysOf[V any](m map[string]V) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }

// setType sets the type, and what the API server and the load balancer would set with it, unless it
// is set already.
func setType(s *corev1.Service, value string) error {
	s.Spec.Type = corev1.ServiceType(value)
	exposed := s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
	for i := range s.Spec.Ports {
		switch p := &s.Spec.Ports[i]; {
		case !exposed:
			p.NodePort = 0
		case p.NodePort == 0:
			p.NodePort = nodePortOf(s.Spec.Ports, i)
		}
	}
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		s.Status.LoadBalancer.Ingress = nil
	} else if s.Status.LoadBalancer.Ingress == nil {
		return setIngress(s, "vip")
	}
	return nil
}

// nodePortOf sets the node port of port i: 30080, 30081, …; the same number for the same port of
// another protocol.
func nodePortOf(ports []corev1.ServicePort, i int) int32 {
	for k := range i {
		if ports[k].Port == ports[i].Port {
			return ports[k].NodePort
		}
	}
	return int32(fixture.NodePort + i)
}

// setPorts takes name:port[:target[:nodePort]][/protocol], separated by commas. An empty name is an
// unnamed port.
func setPorts(s *corev1.Service, value string) error {
	s.Spec.Ports = nil
	for word := range strings.SplitSeq(value, ",") {
		numbers, protocol, ok := strings.Cut(word, "/")
		if !ok {
			protocol = string(corev1.ProtocolTCP)
		}
		parts := strings.Split(numbers, ":")
		p := corev1.ServicePort{Name: parts[0], Protocol: corev1.Protocol(protocol)}
		for i, into := range []*int32{&p.Port, nil, &p.NodePort} {
			if i+1 >= len(parts) || parts[i+1] == "" {
				continue
			}
			n, err := strconv.ParseInt(parts[i+1], 10, 32)
			if err != nil {
				return err
			}
			if into != nil {
				*into = int32(n)
			} else {
				p.TargetPort = intstr.FromInt32(int32(n))
			}
		}
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
	return setType(s, string(s.Spec.Type))
}

func setInternalPolicy(s *corev1.Service, value string) error {
	s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicy(value))
	return nil
}

func setExternalPolicy(s *corev1.Service, value string) error {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicy(value)
	return nil
}

// setAffinity takes None, or the timeout of ClientIP affinity in seconds.
func setAffinity(s *corev1.Service, value string) error {
	s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
	if value == "None" {
		return nil
	}
	seconds, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return err
	}
	s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(int32(seconds))}}
	return nil
}

// list returns the parts of a value: a name stands for its texts in both families, a literal for
// itself.
func list(value string) []string {
	var all []string
	if value == "none" {
		return nil
	}
	for word := range strings.SplitSeq(value, ",") {
		all = append(all, fixture.Texts(word)...)
	}
	return all
}

func setRanges(s *corev1.Service, value string) error {
	s.Spec.LoadBalancerSourceRanges = list(value)
	return nil
}

func setExternalIPs(s *corev1.Service, value string) error {
	s.Spec.ExternalIPs = list(value)
	return nil
}

// setIngress takes addresses, each with a mode of the API behind a colon if it has one (vip:Proxy),
// and host names (hostname:lb.example). The word none removes all.
func setIngress(s *corev1.Service, value string) error {
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{}
	if value == "none" {
		return nil
	}
	for word := range strings.SplitSeq(value, ",") {
		if host, ok := strings.CutPrefix(word, "hostname:"); ok {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{Hostname: host})
			continue
		}
		name, mode := word, string(corev1.LoadBalancerIPModeVIP)
		for _, known := range []corev1.LoadBalancerIPMode{corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP} {
			if cut, ok := strings.CutSuffix(word, ":"+string(known)); ok {
				name, mode = cut, string(known)
			}
		}
		for _, address := range fixture.Texts(name) {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress,
				corev1.LoadBalancerIngress{IP: address, IPMode: ptr.To(corev1.LoadBalancerIPMode(mode))})
		}
	}
	return nil
}

// setClusterIPs takes the addresses as they are; None is a headless Service.
func setClusterIPs(s *corev1.Service, value string) error {
	s.Spec.ClusterIPs = list(value)
	s.Spec.ClusterIP = ""
	if len(s.Spec.ClusterIPs) > 0 {
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	}
	return nil
}

// setFamilies takes ipv4, ipv6, or both in either order, and puts the addresses in that order.
func setFamilies(s *corev1.Service, value string) error {
	old := s.Spec.ClusterIPs
	s.Spec.IPFamilies, s.Spec.ClusterIPs = nil, nil
	for word := range strings.SplitSeq(value, ",") {
		family := slices.Index([]string{"ipv4", "ipv6"}, word)
		if family < 0 {
			return fmt.Errorf("%q: want ipv4 or ipv6", word)
		}
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, apiFamilies[family])
		for _, address := range old {
			if strings.Contains(address, ":") == (word == "ipv6") {
				s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, address)
			}
		}
	}
	if len(s.Spec.ClusterIPs) > 0 {
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	}
	return nil
}

func setHealthPort(s *corev1.Service, value string) error {
	port, err := strconv.ParseInt(value, 10, 32)
	s.Spec.HealthCheckNodePort = int32(port)
	return err
}

// setDenied takes ranges.
func setDenied(s *corev1.Service, value string) error {
	const deny = "sluice.dev/deny-source-ranges"
	if err := setPairs(&s.Annotations, deny+"-"); err != nil || value == "none" {
		return err
	}
	s.Annotations[deny] = strings.Join(list(value), ",")
	return nil
}

// setPairs takes key:value, separated by commas. A key followed by a minus is removed.
func setPairs(into *map[string]string, value string) error {
	if *into == nil {
		*into = make(map[string]string)
	}
	for word := range strings.SplitSeq(value, ",") {
		if key, ok := strings.CutSuffix(word, "-"); ok {
			delete(*into, key)
			continue
		}
		key, v, _ := strings.Cut(word, ":")
		(*into)[key] = v
	}
	return nil
}
