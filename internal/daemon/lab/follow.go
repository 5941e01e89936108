// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/manifest"
)

// Follow makes a lab follow a directory of manifests until the context ends. It calls changed after each change, once
// it has read all manifests. The proxy reads the same directory, and reports its errors.
func (l *Lab) Follow(ctx context.Context, dir, nodeName string, changed func(State)) {
	news := &news{notices: make(chan struct{}, 1)}
	cache := source.NewCache(news, source.Options{})
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		_ = manifest.New(dir, cache, nodeName, zap.NewNop()).Run(ctx) // it never fails
		close(done)
	}()
	defer func() { cancel(); <-done }()
	for {
		select {
		case <-news.notices:
			complete := news.complete.Load()
			l.Want(endpoints(cache))
			if complete {
				changed(l.state(cache))
			}
		case <-ctx.Done():
			return
		}
	}
}

// endpoints returns the sockets of the endpoints in the cache, ready or not, with the Service and port of each.
func endpoints(cache *source.Cache) map[Socket]string {
	wanted := map[Socket]string{}
	for _, key := range cache.Keys() {
		for _, slice := range cache.Snapshot(key).Slices {
			for _, port := range slice.Ports {
				name := key.String()
				if port.Name != "" {
					name = fmt.Sprintf("%v:%s", key, port.Name)
				}
				for i := range slice.Endpoints {
					socket := Socket{netip.AddrPortFrom(slice.Endpoints[i].Addr, port.Port), port.Protocol}
					if _, taken := wanted[socket]; !taken {
						wanted[socket] = name
					}
				}
			}
		}
	}
	return wanted
}

// news is the sink of a cache. It holds one notice.
type news struct {
	notices  chan struct{}
	complete atomic.Bool
}

func (n *news) notice() {
	select {
	case n.notices <- struct{}{}:
	default:
	}
}

func (n *news) PostSpec(service.Key, *service.Spec)           { n.notice() }
func (n *news) PostSlice(service.Key, string, *service.Slice) { n.notice() }
func (n *news) PostNode(*service.NodeObject)                  {}
func (n *news) PostServiceCIDRs([]netip.Prefix)               {}

func (n *news) Primed() {
	n.complete.Store(true)
	n.notice()
}

// State describes a lab after a change.
type State struct {
	// Pods and Servers count them.
	Pods, Servers int
	// Target is a Service's address at which a server of the lab answers HTTP: a ClusterIP
	// with a TCP port and a ready endpoint. It is not valid if there is none.
	Target netip.AddrPort
}

func (l *Lab) state(cache *source.Cache) State {
	return State{Pods: len(l.hosts), Servers: len(l.servers), Target: l.target(cache)}
}

// target returns the first Target.
func (l *Lab) target(cache *source.Cache) netip.AddrPort {
	for _, family := range service.Families {
		for _, key := range cache.Keys() {
			snapshot := cache.Snapshot(key)
			if snapshot.Spec == nil || !snapshot.Spec.ClusterIPs[family].IsValid() {
				continue
			}
			for _, port := range snapshot.Spec.Ports {
				if port.Protocol == service.TCP && l.answers(snapshot.Slices, family, port.Name) {
					return netip.AddrPortFrom(snapshot.Spec.ClusterIPs[family], port.Port)
				}
			}
		}
	}
	return netip.AddrPort{}
}

// answers reports whether a ready endpoint behind a port has a server.
func (l *Lab) answers(slices []*service.Slice, family service.Family, portName string) bool {
	for _, slice := range slices {
		for _, port := range slice.Ports {
			if slice.Family != family || port.Name != portName || port.Protocol != service.TCP {
				continue
			}
			for i := range slice.Endpoints {
				e := &slice.Endpoints[i]
				if e.Ready && l.servers[Socket{netip.AddrPortFrom(e.Addr, port.Port), port.Protocol}] != nil {
					return true
				}
			}
		}
	}
	return false
}
