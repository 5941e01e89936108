// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// first is a Service that a cluster needs to come up. It has one endpoint, in this process, which
// shows when the Service is served.
type first struct {
	key      service.Key
	network  string
	frontend netip.AddrPort
	endpoint netip.AddrPort
}

// firsts are the API server's own Service and DNS.
var firsts = []first{
	{
		service.Key{Namespace: "default", Name: "kubernetes"}, "tcp",
		netip.MustParseAddrPort("10.96.0.1:443"), netip.MustParseAddrPort("192.0.2.1:6443"),
	},
	{
		service.Key{Namespace: "kube-system", Name: "kube-dns"}, "udp",
		netip.MustParseAddrPort("10.96.0.10:53"), netip.MustParseAddrPort("192.0.2.2:53"),
	},
}

func (f first) protocol() corev1.Protocol {
	if f.network == "udp" {
		return corev1.ProtocolUDP
	}
	return corev1.ProtocolTCP
}

// first makes the objects of one of firsts.
func (c *cluster) first(f first) (*corev1.Service, *discoveryv1.EndpointSlice) {
	svc := c.clusterIPService(f.key, f.frontend.Addr().String(), corev1.ServicePort{
		Name: "main", Protocol: f.protocol(), Port: int32(f.frontend.Port()),
	})
	port := discoveryv1.EndpointPort{Name: new("main"), Protocol: new(f.protocol()), Port: new(int32(f.endpoint.Port()))}
	slice := c.endpointSlice(f.key, 0, []discoveryv1.EndpointPort{port}, []discoveryv1.Endpoint{{
		Addresses: []string{f.endpoint.Addr().String()}, NodeName: new("node-0001"),
	}})
	return svc, slice
}

// answering starts the servers behind firsts, and adds the routes to reach them to this process's
// namespace, unless a former process has.
func answering() (*netns.Namespace, error) {
	here, err := netns.Current("reaction")
	if err != nil {
		return nil, err
	}
	if err := here.AddLinkRoute(netip.MustParsePrefix("10.96.0.0/12"), "lo"); err != nil {
		return nil, err
	}
	for _, f := range firsts {
		if err := here.AddAddress("lo", netip.PrefixFrom(f.endpoint.Addr(), 32)); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, err
		}
		if _, err := netnstest.StartBackend(here, f.key.Name, f.endpoint); err != nil {
			return nil, err
		}
	}
	return here, nil
}

// askUntilServed asks one of firsts until it answers, and returns when it did.
func askUntilServed(ctx context.Context, here *netns.Namespace, f first) (time.Time, error) {
	const patience, pause = 3 * time.Millisecond, 2 * time.Millisecond
	for ctx.Err() == nil {
		try, cancel := context.WithTimeout(ctx, patience)
		answer, err := netnstest.Ask(try, here, f.network, f.frontend)
		cancel()
		if err == nil && answer.Backend == f.key.Name {
			return time.Now(), nil
		}
		time.Sleep(pause)
	}
	return time.Time{}, ctx.Err()
}
