// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/service"
)

// A case is one kind of traffic.
type benchCase struct {
	name string
	// to returns where the traffic goes to. Of Services there are enough to choose from.
	to func(c cluster, f service.Family) []target
	// begin prepares the traffic, in the namespace of the client.
	begin func(s *scene) (traffic, error)
	// bare says that the case needs no proxy.
	bare bool
	// goal is the largest ratio to kube-proxy that is wanted in mode nftables.
	goal float64
}

// unslower is the goal of every other case and backend: not slower than kube-proxy.
const unslower = 1.0

var cases = []benchCase{
	{"established-pod", toPods(plain), beginEstablished, true, 0.955},
	{"established-cluster-ip", toClusterIPs(plain), beginEstablished, false, 0.955},
	{"one-way-pod", toPods(datagrams), beginOneWay, true, 0.82},
	{"one-way-cluster-ip", toClusterIPs(datagrams), beginOneWay, false, 0.85},
	{"tcp-pod", toPods(plain), beginConnections, true, 0.93},
	{"tcp-cluster-ip", toClusterIPs(plain), beginConnections, false, 0.94},
	{"tcp-node-port", toNodePorts, beginConnections, false, 0.94},
	{"udp-pod", toPods(datagrams), beginQuestions, true, 0.93},
	{"udp-cluster-ip", toClusterIPs(datagrams), beginQuestions, false, 0.94},
	{"source-ranges", toLoadBalancers, beginConnections, false, unslower},
	{"affinity-10", toClusterIPs(affinity), beginConnections, false, unslower},
	{"affinity-1000", toBigAffinity, beginConnections, false, unslower},
}

// chooseCases returns the cases whose names begin with one of the words.
func chooseCases(words string) (chosen []benchCase, err error) {
	var all []string
	for _, c := range cases {
		all = append(all, c.name)
	}
	names, err := rig.Choose(words, all, func(string) bool { return false })
	for _, name := range names {
		chosen = append(chosen, cases[slices.Index(all, name)])
	}
	return chosen, err
}

// target is one destination.
type target struct {
	at   netip.AddrPort
	udp  bool
	raw  *address
	pods []netip.Addr // who may answer
	// sticky says that the same pod answers a client each time. client is the number of one of
	// several clients, 0 being the usual one.
	sticky bool
	client int
}

func newTarget(addr netip.Addr, port uint16, udp bool, pods ...netip.Addr) target {
	at := netip.AddrPortFrom(addr, port)
	return target{at: at, udp: udp, raw: newAddress(at), pods: pods}
}

// targetsMax is how many Services a case uses.
const targetsMax = 16

// spread chooses Services of a kind, evenly over all.
func (c cluster) spread(k kind) []int { return rig.Spread(c.numbers(k), targetsMax) }

func toPods(k kind) func(cluster, service.Family) []target {
	return func(c cluster, f service.Family) (all []target) {
		for _, i := range c.spread(k) {
			pod, port := c.endpointsOf(f, i)[i%c.endpoints], uint16(targetTCP)
			if c.isUDP(i) {
				port = targetUDP
			}
			all = append(all, newTarget(pod, port, c.isUDP(i), pod))
		}
		return all
	}
}

func toClusterIPs(k kind) func(cluster, service.Family) []target {
	return func(c cluster, f service.Family) (all []target) {
		for _, i := range c.spread(k) {
			all = append(all, c.byClusterIP(f, i))
		}
		return all
	}
}

func (c cluster) byClusterIP(f service.Family, i int) target {
	port := uint16(portTCP)
	if c.isUDP(i) {
		port = portUDP
	}
	t := newTarget(c.clusterIP(f, i), port, c.isUDP(i), c.endpointsOf(f, i)...)
	k := c.kindOf(i)
	t.sticky = k == affinity || k == affinityBig
	return t
}

// toBigAffinity has several clients: what a client pays may depend on which pod it got.
func toBigAffinity(c cluster, f service.Family) (all []target) {
	for client := range clientsMax {
		t := c.byClusterIP(f, c.services)
		t.client = client + 1
		all = append(all, t)
	}
	return all
}

func toNodePorts(c cluster, f service.Family) (all []target) {
	for _, i := range c.spread(nodePort) {
		all = append(all, newTarget(nodeAddress[f], c.nodePort(i), false, c.endpointsOf(f, i)...))
	}
	return all
}

func toLoadBalancers(c cluster, f service.Family) (all []target) {
	for _, i := range c.spread(sourceRanges) {
		all = append(all, newTarget(c.loadBalancerIP(f, i), portTCP, false, c.endpointsOf(f, i)...))
	}
	return all
}

// everything returns every address at which a cluster serves.
func (c cluster) everything(f service.Family) (all []target) {
	for i := range c.services + 1 {
		if c.kindOf(i) == empty {
			continue
		}
		all = append(all, c.byClusterIP(f, i))
		switch c.kindOf(i) {
		case nodePort:
			all = append(all, newTarget(nodeAddress[f], c.nodePort(i), false, c.endpointsOf(f, i)...))
		case sourceRanges:
			all = append(all, newTarget(c.loadBalancerIP(f, i), portTCP, false, c.endpointsOf(f, i)...))
		}
	}
	return all
}

// visit makes sure that the right pod is behind a target: it takes a connection or a question. It returns the pod.
func (t target) visit(s server) (netip.Addr, error) {
	pod, err := t.ask(s)
	if err == nil && !slices.Contains(t.pods, pod) {
		return pod, fmt.Errorf("%s is answered by %s, which is not one of its pods", t.at, pod)
	}
	if err != nil {
		return pod, fmt.Errorf("%s: %w", t.at, err)
	}
	return pod, nil
}

func (t target) ask(s server) (netip.Addr, error) {
	if t.udp {
		return t.askDatagram(s)
	}
	client, err := dial(t.raw, unix.SOCK_STREAM)
	if err != nil {
		return netip.Addr{}, err
	}
	peer, err := accept(s.listener)
	if err != nil {
		closeAll(client)
		return netip.Addr{}, err
	}
	at, err := localEnd(peer)
	if resetting := reset(client); err == nil {
		err = resetting
	}
	closeAll(peer)
	return at.Addr(), err
}

func (t target) askDatagram(s server) (netip.Addr, error) {
	client, err := dial(t.raw, unix.SOCK_DGRAM)
	if err != nil {
		return netip.Addr{}, err
	}
	defer closeAll(client)
	e := newEnvelope(payload)
	if err := send(client, e.body); err != nil {
		return netip.Addr{}, err
	}
	if err := e.receive(s.datagrams); err != nil {
		return netip.Addr{}, err
	}
	pod := e.sentTo()
	if err := e.answer(s.datagrams); err != nil {
		return pod, err
	}
	return pod, receive(client, e.body)
}
