package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// endpointsEach and portsEach are those of every Service of many.
const (
	endpointsEach = 10
	portsEach     = 2
)

// many prints what a process in userspace mode holds for so many Services: it waits until each
// service port has its listener, and 30 s more.
func many(ctx context.Context, sluice string, services int) (err error) {
	network, err := netns.Build(netns.Plan{Cables: []netns.Cable{
		{Router: "node", Leaf: "client", Port: "client", AtRouter: netns.Prefixes("192.0.2.1/24"), AtLeaf: netns.Prefixes("192.0.2.2/24")},
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, network.Close()) }()
	dir, err := os.MkdirTemp("", "forward-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	manifests := filepath.Join(dir, "manifests")
	if err := os.Mkdir(manifests, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(manifests, "all.yaml"), manyManifests(services), 0o644); err != nil {
		return err
	}
	kernel, began := slab(), time.Now()
	proxy, err := netns.StartDaemon(network.Hosts["node"], filepath.Join(dir, "log"), exec.Command(sluice, "run",
		"--manifests", manifests, "--proxy-mode", "userspace", "--hostname-override", "demo", "--sluice-state-dir", filepath.Join(dir, "state")))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, proxy.Kill()) }()
	for listeners(proxy.PID()) < services*portsEach {
		if !rig.Sleep(ctx, 200*time.Millisecond) {
			return ctx.Err()
		}
		if time.Since(began) > 5*time.Minute {
			return fmt.Errorf("%d listeners after 5 min\n%s", listeners(proxy.PID()), proxy.Tail(5))
		}
	}
	took := time.Since(began)
	time.Sleep(30 * time.Second)
	descriptors, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", proxy.PID()))
	if err != nil {
		return err
	}
	fmt.Printf("%d Services, %d ports, %d endpoints each: %d listeners after %v\n",
		services, portsEach, endpointsEach, listeners(proxy.PID()), took.Round(100*time.Millisecond))
	fmt.Printf("descriptors %d, resident %d MiB, the kernel's sockets and routes %d MiB\n", len(descriptors),
		int(rig.MiB(proxy.PID(), rig.Resident)), (slab()-kernel)>>10)
	return nil
}

// manyManifests describes the node and the Services.
func manyManifests(services int) []byte {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: Node\nmetadata: {name: demo}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n")
	at, to := netip.MustParseAddr("172.30.0.1"), netip.MustParseAddr("10.244.0.1")
	for i := range services {
		fmt.Fprintf(&b, `---
apiVersion: v1
kind: Service
metadata: {namespace: demo, name: s%[1]d}
spec: {clusterIP: %[2]s, clusterIPs: [%[2]s], ipFamilies: [IPv4], ports: [{name: a, port: 80}, {name: b, port: 81}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: demo, name: s%[1]d, labels: {kubernetes.io/service-name: s%[1]d}}
addressType: IPv4
ports: [{name: a, port: 8080}, {name: b, port: 8081}]
endpoints:
`, i, at)
		at = at.Next()
		for range endpointsEach {
			fmt.Fprintf(&b, "- {addresses: [%s], conditions: {ready: true}}\n", to)
			to = to.Next()
		}
	}
	return []byte(b.String())
}

// listeners counts the TCP sockets that listen at the Services' ports in the namespace of a process.
func listeners(pid int) (n int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", pid)) // without it, there are none yet
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) > 3 && f[3] == "0A" && (strings.HasSuffix(f[1], ":0050") || strings.HasSuffix(f[1], ":0051")) {
			n++
		}
	}
	return n
}

// slab returns the kernel's memory for small objects, in KiB.
func slab() int { return rig.KiB("/proc/meminfo", "Slab") }
