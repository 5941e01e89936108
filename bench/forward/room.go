package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// Where everything is.
var (
	serviceAt = netip.MustParseAddrPort("172.30.0.41:80")
	streamAt  = netip.MustParseAddrPort("172.30.0.41:9000")
	endpoints = []netip.AddrPort{netip.MustParseAddrPort("10.244.1.11:8080"), netip.MustParseAddrPort("10.244.1.12:8080")}
	sinkAt    = netip.MustParseAddrPort("10.244.1.11:9000")

	clientCable = netns.Cable{
		Router: "node", Leaf: "client", Port: "client", AtRouter: netns.Prefixes("192.0.2.1/24"), AtLeaf: netns.Prefixes("192.0.2.2/24"),
	}
)

// room is a network with a proxy.
type room struct {
	*netns.Network
	client, node, pods *netns.Namespace
	proxy              *netns.Daemon
	dir                string
}

// The manifests: a Service has a name, an address and ports, a slice its own name, that of the Service, and ports.
const (
	nodeManifest    = "apiVersion: v1\nkind: Node\nmetadata: {name: demo}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n"
	serviceManifest = `---
apiVersion: v1
kind: Service
metadata: {namespace: demo, name: %s}
spec: {clusterIP: %[2]s, clusterIPs: [%[2]s], ipFamilies: [IPv4], ports: [%[3]s]}
`
	sliceManifest = `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: demo, name: %s, labels: {kubernetes.io/service-name: %s}}
addressType: IPv4
ports: [%s]
endpoints:
`
	endpointManifest = "- {addresses: [%s], conditions: {ready: true}}\n"
)

// writeManifests replaces the manifests of a directory. The proxy must not read half a file.
func writeManifests(dir, services string) error {
	next, manifests := filepath.Join(dir, "next"), filepath.Join(dir, "manifests")
	return errors.Join(os.MkdirAll(manifests, 0o755), os.WriteFile(next, []byte(nodeManifest+services), 0o644),
		os.Rename(next, filepath.Join(manifests, "all.yaml")))
}

// startProxy starts the program over the manifests of a directory.
func startProxy(node *netns.Namespace, sluice, mode, dir string) (*netns.Daemon, error) {
	return netns.StartDaemon(node, filepath.Join(dir, "log"), exec.Command(sluice, "run",
		"--manifests", filepath.Join(dir, "manifests"), "--proxy-mode", mode, "--hostname-override", "demo",
		"--metrics-bind-address", "127.0.0.1:10249", "--sluice-state-dir", filepath.Join(dir, "state")))
}

// newRoom starts everything, and waits until the Service answers.
func newRoom(ctx context.Context, sluice, mode, dir string) (r *room, err error) {
	plan := netns.Plan{Cables: []netns.Cable{clientCable,
		{Router: "node", Leaf: "pods", Port: "pods", AtRouter: netns.Prefixes("10.244.1.1/24"),
			AtLeaf: netns.Prefixes("10.244.1.11/24", "10.244.1.12/24")},
	}}
	for _, at := range endpoints {
		plan.Servers = append(plan.Servers, netns.Server{Name: at.Addr().String(), Host: "pods", At: at})
	}
	network, err := netns.Build(plan)
	if err != nil {
		return nil, err
	}
	r = &room{Network: network, client: network.Hosts["client"], node: network.Hosts["node"], pods: network.Hosts["pods"], dir: dir}
	if err := r.describe(endpoints...); err != nil {
		return nil, errors.Join(err, r.close())
	}
	if r.proxy, err = startProxy(r.node, sluice, mode, dir); err != nil {
		return nil, errors.Join(err, r.close())
	}
	limit, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = rig.Await(limit, r.proxy, func() error {
		_, err := r.client.Ask(limit, "tcp", serviceAt)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// describe writes the manifests.
func (r *room) describe(present ...netip.AddrPort) error {
	text := fmt.Sprintf(serviceManifest, "web", serviceAt.Addr(), "{name: web, port: 80}, {name: stream, port: 9000}") +
		fmt.Sprintf(sliceManifest+endpointManifest, "stream", "web", "{name: stream, port: 9000}", sinkAt.Addr()) +
		fmt.Sprintf(sliceManifest, "web", "web", "{name: web, port: 8080}")
	for _, at := range present {
		text += fmt.Sprintf(endpointManifest, at.Addr())
	}
	return writeManifests(r.dir, text)
}

func (r *room) close() error {
	var failed error
	if r.proxy != nil {
		failed = r.proxy.Kill()
	}
	return errors.Join(failed, r.Network.Close())
}
