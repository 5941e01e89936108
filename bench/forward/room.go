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

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// Where everything is.
var (
	serviceAt = netip.MustParseAddrPort("172.30.0.41:80")
	streamAt  = netip.MustParseAddrPort("172.30.0.41:9000")
	endpoints = []netip.AddrPort{netip.MustParseAddrPort("10.244.1.11:8080"), netip.MustParseAddrPort("10.244.1.12:8080")}
	sinkAt    = netip.MustParseAddrPort("10.244.1.11:9000")
)

// room is a network with a proxy.
type room struct {
	*netns.Network
	client, node, pods *netns.Namespace
	proxy              *netns.Daemon
	dir                string
}

const manifest = `apiVersion: v1
kind: Node
metadata: {name: demo}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: demo, name: web}
spec:
  clusterIP: 172.30.0.41
  clusterIPs: [172.30.0.41]
  ipFamilies: [IPv4]
  ports: [{name: web, port: 80}, {name: stream, port: 9000}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: demo, name: stream, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: stream, port: 9000}]
endpoints: [{addresses: [10.244.1.11], conditions: {ready: true}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: demo, name: web, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: web, port: 8080}]
endpoints:
`

// newRoom starts everything, and waits until the Service answers.
func newRoom(ctx context.Context, sluice, mode string) (r *room, err error) {
	r = &room{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.dir, err = os.MkdirTemp("", "forward-"); err != nil {
		return r, err
	}
	plan := netns.Plan{Cables: []netns.Cable{
		{Router: "node", Leaf: "client", Port: "client", AtRouter: netns.Prefixes("192.0.2.1/24"), AtLeaf: netns.Prefixes("192.0.2.2/24")},
		{Router: "node", Leaf: "pods", Port: "pods", AtRouter: netns.Prefixes("10.244.1.1/24"),
			AtLeaf: netns.Prefixes("10.244.1.11/24", "10.244.1.12/24")},
	}}
	for _, at := range endpoints {
		plan.Servers = append(plan.Servers, netns.Server{Name: at.Addr().String(), Host: "pods", At: at})
	}
	if r.Network, err = netns.Build(plan); err != nil {
		return r, err
	}
	r.client, r.node, r.pods = r.Hosts["client"], r.Hosts["node"], r.Hosts["pods"]
	if err := r.describe(endpoints...); err != nil {
		return r, err
	}
	r.proxy, err = netns.StartDaemon(r.node, filepath.Join(r.dir, "log"), exec.Command(sluice, "run",
		"--manifests", filepath.Join(r.dir, "manifests"), "--proxy-mode", mode, "--hostname-override", "demo",
		"--metrics-bind-address", "127.0.0.1:10249", "--sluice-state-dir", filepath.Join(r.dir, "state")))
	if err != nil {
		return r, err
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err = r.client.Ask(ctx, "tcp", serviceAt); err == nil {
			return r, nil
		}
		if time.Now().After(deadline) {
			return r, fmt.Errorf("the Service does not answer: %w\n%s", err, r.proxy.Tail(5))
		}
	}
}

// describe writes the manifests.
func (r *room) describe(present ...netip.AddrPort) error {
	text := manifest
	for _, at := range present {
		text += fmt.Sprintf("- {addresses: [%s], conditions: {ready: true}}\n", at.Addr())
	}
	dir := filepath.Join(r.dir, "manifests")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file := filepath.Join(r.dir, "next") // the proxy must not read half a file
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(file, filepath.Join(dir, "web.yaml"))
}

func (r *room) close() error {
	var failed []error
	if r.proxy != nil {
		failed = append(failed, r.proxy.Kill())
	}
	if r.Network != nil {
		failed = append(failed, r.Network.Close())
	}
	return errors.Join(append(failed, os.RemoveAll(r.dir))...)
}
