// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// tenantService returns a Service of the tenant, older than those of the others.
func tenantService(name string, clusterIP string, ports int) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: tenantSpace, Name: name, UID: "1", CreationTimestamp: metav1.NewTime(time.Unix(1, 0)),
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: clusterIP, ClusterIPs: []string{clusterIP},
			IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack), IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		},
	}
	for port := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", port), Protocol: corev1.ProtocolTCP, Port: int32(webPort + port)})
	}
	return s
}

// setTenant writes a Service and one slice of it with an endpoint for each address, and returns what
// removes both.
func (r *trial) setTenant(s *corev1.Service, endpoints ...string) (remove func()) {
	r.c.api.Set(apitest.Services, s)
	r.c.api.Set(apitest.EndpointSlices, sliceOf(s, endpoints...))
	return func() {
		r.c.api.Remove(apitest.EndpointSlices, tenantSpace, s.Name)
		r.c.api.Remove(apitest.Services, tenantSpace, s.Name)
	}
}

func sliceOf(s *corev1.Service, endpoints ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: tenantSpace, Name: s.Name, Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, port := range s.Spec.Ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &port.Name, Protocol: &port.Protocol, Port: ptr.To(int32(podPort(0)))})
	}
	for _, address := range endpoints {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true)},
		})
	}
	return slice
}

// tenantIP is the ClusterIP of the tenant's Service of a number.
func tenantIP(n int) string { return clusterIP(service.IPv4, 128<<8+n).String() }

func (r *trial) oversize() (func(), error) {
	const addresses, ports = 800, 250
	s := tenantService("huge", tenantIP(0), ports)
	for n := range addresses {
		s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, fmt.Sprintf("198.18.%d.%d", n>>8, n&255))
	}
	return r.setTenant(s, podAddress(service.IPv4, 0).String()), nil
}

func (r *trial) annotations() (func(), error) {
	const services, length = 300, 20_000
	var ends []func()
	for n := range services {
		s := tenantService(fmt.Sprintf("annotated%d", n), tenantIP(n), 1)
		s.Annotations = map[string]string{"sluice.dev/ipvs-scheduler": strings.Repeat("\x01", length)}
		ends = append(ends, r.setTenant(s))
	}
	return all(ends), nil
}

func (r *trial) squat() (func(), error) {
	var ends []func()
	for n := range r.c.live {
		s := tenantService(fmt.Sprintf("squat%d", n), tenantIP(n), 1)
		s.Spec.ExternalIPs = []string{clusterAddr(service.IPv4, n, webPort).Addr().String()}
		ends = append(ends, r.setTenant(s, podAddress(service.IPv4, 0).String()))
	}
	return all(ends), nil
}

// metadata are addresses of metadata and platform services, which have no place in any rule.
var metadata = []string{"169.254.169.254", "168.63.129.16"}

func (r *trial) special() (func(), error) {
	special := append([]string{"127.0.0.1", "224.0.0.1", "0.0.0.0"}, metadata...)
	s := tenantService("special", tenantIP(0), 1)
	s.Spec.ExternalIPs = append(special, nodeAddress[service.IPv4].String())
	return r.setTenant(s, append(special, podAddress(service.IPv4, 0).String())...), nil
}

// noSpecial returns an error if a rule of the node contains such an address.
func (r *trial) noSpecial() error {
	rules, err := netnstest.Output(r.p.Namespace, exec.Command("sh", "-c", "nft list ruleset; iptables-nft-save; iptables-legacy-save"))
	if err != nil {
		return err
	}
	for _, address := range metadata {
		if bytes.Contains(rules, []byte(address)) {
			return fmt.Errorf("%s is in the rules of the node", address)
		}
	}
	return nil
}

func (r *trial) idle() (func(), error) {
	const clients = 2000
	var conns []net.Conn
	end := func() {
		for _, c := range conns {
			c.Close() // the process may have closed it
		}
	}
	for range clients {
		ctx, cancel := context.WithTimeout(context.Background(), r.patience)
		c, err := r.t.client.DialContext(ctx, "tcp", net.JoinHostPort(nodeAddress[service.IPv4].String(), "10256"))
		cancel()
		if err != nil {
			end()
			return nil, err
		}
		conns = append(conns, c)
		if _, err := c.Write([]byte("GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n")); err != nil {
			continue // closed in favor of newer ones
		}
	}
	return end, nil
}

func (r *trial) flap() (func(), error) {
	const endpoints, ports = 250, 10
	s := tenantService("flapping", tenantIP(0), ports)
	var addresses []string
	for n := range endpoints {
		addresses = append(addresses, fmt.Sprintf("10.244.9.%d", n+1))
	}
	remove := r.setTenant(s, addresses...)
	end := again(2*time.Millisecond, func(n int) { r.setTenant(s, addresses[n%endpoints:]...) })
	return func() { end(); remove() }, nil
}

// slices writes a Service with more objects than the limit, and one that nftables mode writes in turns.
func (r *trial) slices() (func(), error) {
	const endpoints = 1000
	addresses := func(n int) (all []string) {
		for i := range endpoints {
			all = append(all, fmt.Sprintf("10.%d.%d.%d", 200+n%2, i>>8, i&255))
		}
		return all
	}
	tooLarge, large := tenantService("too-large", tenantIP(0), 490), tenantService("large", tenantIP(1), 20)
	removes := []func(){r.setTenant(tooLarge, addresses(0)...), r.setTenant(large, addresses(0)...)}
	end := again(500*time.Millisecond, func(n int) {
		r.setTenant(tooLarge, addresses(n)...)
		r.setTenant(large, addresses(n)...)
	})
	return func() { end(); all(removes)() }, nil
}

// texts writes slices with a megabyte of text each, other text every time, and goes on.
func (r *trial) texts() (func(), error) {
	const writes, size = 100, 1_000_000
	s := tenantService("texts", tenantIP(0), 1)
	remove := r.setTenant(s, podAddress(service.IPv4, 0).String())
	write := func(n int) {
		text := fmt.Sprint(n, strings.Repeat("z", size))
		slice := sliceOf(s, podAddress(service.IPv4, 0).String())
		if e := &slice.Endpoints[0]; n%2 == 0 {
			e.Zone = &text
		} else {
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: text}}}
		}
		r.c.api.Set(apitest.EndpointSlices, slice)
	}
	for n := range writes {
		write(n)
		time.Sleep(10 * time.Millisecond)
	}
	end := again(200*time.Millisecond, func(n int) { write(writes + n) })
	return func() { end(); remove() }, nil
}

// flipped are annotations in turn, each of which changes the rules or what the node observes.
var flipped = []map[string]string{
	{"sluice.dev/balancing": "leastConnections", "sluice.dev/outlier": "passive"}, nil,
	{"sluice.dev/balancing": "sourceHash", "sluice.dev/slow-start": "5s"}, {"sluice.dev/outlier": "passive", "sluice.dev/drain": "1s"},
	{"sluice.dev/deny-source-ranges": "198.51.100.0/24", "sluice.dev/no-endpoints": "drop", "sluice.dev/flow-log": "on"},
}

func (r *trial) flip() (func(), error) {
	write := func(n int) func() {
		s := tenantService("flipping", tenantIP(0), 10)
		s.Annotations = flipped[n%len(flipped)]
		return r.setTenant(s, podAddress(service.IPv4, 0).String())
	}
	remove := write(0)
	end := again(2*time.Millisecond, func(n int) { write(n) })
	return func() { end(); remove() }, nil
}

// redirect asks for the connections to the proxy. What answers the health probes would be a pod.
func (r *trial) redirect() (func(), error) {
	s := tenantService("redirecting", tenantIP(0), 1)
	for _, port := range []int32{10249, 10250, 10256} {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("own", port), Protocol: corev1.ProtocolTCP, Port: port})
	}
	s.Spec.ExternalIPs = []string{nodeAddress[service.IPv4].String()}
	return r.setTenant(s, podAddress(service.IPv4, 0).String()), nil
}

// again does something again and again, with numbers from 1, until the function it returns is called.
func again(every time.Duration, do func(n int)) (end func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				do(n)
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

func all(ends []func()) func() {
	return func() {
		for _, end := range ends {
			end()
		}
	}
}
