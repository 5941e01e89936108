// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// testNamespace is the Kubernetes namespace that tests write to.
const testNamespace = "default"

// newService describes a dual-stack Service on ServicePort, over TCP and UDP.
func newService(name string, kind corev1.ServiceType) *corev1.Service {
	dualStack := corev1.IPFamilyPolicyRequireDualStack
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Type: kind, IPFamilyPolicy: &dualStack},
	}
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{
			Name: portName(protocol), Protocol: protocol, Port: ServicePort, TargetPort: intstr.FromInt32(BackendPort),
		})
	}
	return service
}

func portName(protocol corev1.Protocol) string {
	if protocol == corev1.ProtocolTCP {
		return "tcp"
	}
	return "udp"
}

// newSlice describes the endpoints of a Service in one family.
func newSlice(service string, family discoveryv1.AddressType, pods []*Host) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name:   sliceName(service, family),
			Labels: map[string]string{discoveryv1.LabelServiceName: service},
			// As the controller does, so that a proxy can tell how long a change took to get there.
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().UTC().Format(time.RFC3339Nano)},
		},
		AddressType: family,
		Endpoints:   []discoveryv1.Endpoint{},
	}
	yes, no, port := true, false, int32(BackendPort)
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		name := portName(protocol)
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: &port})
	}
	for _, pod := range pods {
		addr := pod.V4
		if family == discoveryv1.AddressTypeIPv6 {
			addr = pod.V6
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{addr.String()},
			NodeName:   &pod.Node,
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
		})
	}
	return slice
}

func sliceName(service string, family discoveryv1.AddressType) string {
	if family == discoveryv1.AddressTypeIPv6 {
		return service + "-v6"
	}
	return service + "-v4"
}

// families are the two EndpointSlices that a dual-stack Service has.
var families = []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}

// createNode registers a node under its name with its addresses.
func createNode(ctx context.Context, client kubernetes.Interface, h *Host) error {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: h.Name(), Labels: map[string]string{corev1.LabelHostname: h.Name()}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: h.V4.String()},
			{Type: corev1.NodeInternalIP, Address: h.V6.String()},
			{Type: corev1.NodeHostName, Address: h.Name()},
		}},
	}
	if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create node %s: %w", h.Name(), err)
	}
	return nil
}

// ClusterIPs returns every address of the Service inside the cluster, over both protocols.
func ClusterIPs(service *corev1.Service) ([]Target, error) {
	var addrs []netip.AddrPort
	for _, text := range service.Spec.ClusterIPs {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("cluster IP of %s: %w", service.Name, err)
		}
		addrs = append(addrs, netip.AddrPortFrom(addr, ServicePort))
	}
	if len(addrs) != len(families) {
		return nil, fmt.Errorf("service %s has cluster IPs %v, want one per family", service.Name, addrs)
	}
	return targets(addrs...), nil
}

// NodePorts returns every address at which the Service answers on a node, over both protocols.
func NodePorts(service *corev1.Service, node *Host) ([]Target, error) {
	var all []Target
	for _, port := range service.Spec.Ports {
		if port.NodePort == 0 {
			return nil, fmt.Errorf("service %s has no node port for %s", service.Name, port.Name)
		}
		for _, addr := range []netip.Addr{node.V4, node.V6} {
			all = append(all, Target{Network: port.Name, Addr: netip.AddrPortFrom(addr, uint16(port.NodePort))})
		}
	}
	return all, nil
}
