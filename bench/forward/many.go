package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
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

// many prints the descriptors and the memory of a process in userspace mode with so many Services. It
// waits until each service port has a listener, and for 30 s more.
func many(ctx context.Context, sluice string, services int) error {
	return rig.InFolder("forward", func(dir string) (err error) {
		network, err := netns.Build(netns.Plan{Cables: []netns.Cable{clientCable}})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, network.Close()) }()
		if err := writeManifests(dir, manyManifests(services)); err != nil {
			return err
		}
		kernel, began := slab(), time.Now()
		proxy, err := startProxy(network.Hosts["node"], sluice, "userspace", dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, proxy.Kill()) }()
		limit, cancel := context.WithTimeout(ctx, 5*time.Minute)
		defer cancel()
		err = rig.Await(limit, proxy, func() error {
			if n := listeners(proxy.PID()); n < services*portsEach {
				return fmt.Errorf("%d listeners", n)
			}
			return nil
		})
		took := time.Since(began)
		if err != nil || !rig.Sleep(ctx, 30*time.Second) {
			return errors.Join(err, ctx.Err())
		}
		descriptors, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", proxy.PID()))
		if err != nil {
			return err
		}
		fmt.Printf("%d Services, %d ports, %d endpoints each: %d listeners after %v\n",
			services, portsEach, endpointsEach, listeners(proxy.PID()), took.Round(100*time.Millisecond))
		fmt.Printf("descriptors %d, resident %.0f MiB, the kernel's sockets and routes %d MiB\n", len(descriptors),
			rig.MiB(proxy.PID(), rig.Resident), (slab()-kernel)>>10)
		return nil
	})
}

// manyManifests describes the Services.
func manyManifests(services int) string {
	var b strings.Builder
	at, to := netip.MustParseAddr("172.30.0.1"), netip.MustParseAddr("10.244.0.1")
	for i := range services {
		name := fmt.Sprintf("s%d", i)
		fmt.Fprintf(&b, serviceManifest, name, at, "{name: a, port: 80}, {name: b, port: 81}")
		fmt.Fprintf(&b, sliceManifest, name, name, "{name: a, port: 8080}, {name: b, port: 8081}")
		at = at.Next()
		for range endpointsEach {
			fmt.Fprintf(&b, endpointManifest, to)
			to = to.Next()
		}
	}
	return b.String()
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
