// SPDX-License-Identifier: Apache-2.0

// Package feed provides the Services of a proxy: from the manifests in a directory, or from an API server. It makes the
// client of the API server, and records the addresses at which that client reaches it.
package feed

import (
	"context"
	"net/netip"
	"sync/atomic"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/kube"
	"github.com/sluice-proxy/sluice/source/manifest"
)

// Opener returns the feed of a configuration. It only reads files, and changes nothing on this node.
type Opener func(o *setup.Options) (*Feed, error)

// Feed is where the Services of one server come from.
type Feed struct {
	// Origin describes it, for people.
	Origin string
	// Client is nil without an API server.
	Client *rest.Config
	// servers are the addresses of the API server; nil without one.
	servers *ServerAddresses
	// open makes the source.
	open func(node string, log *zap.Logger) proxy.Source
	// Unserved returns why no node serves an address that Services list; nil with an API server, whose watches leave such
	// Services out.
	Unserved func(at netip.Addr) []string
	// cluster and manifests are set once the source runs; one of them at most.
	cluster   atomic.Pointer[kube.Source]
	manifests atomic.Pointer[manifest.Follower]
}

// Manifests serves the manifests in a directory.
func Manifests(dir string) Opener {
	return func(*setup.Options) (*Feed, error) {
		f := &Feed{Origin: "manifests in " + dir, Unserved: func(at netip.Addr) []string { return manifest.Unserved(dir, at) }}
		f.open = func(node string, log *zap.Logger) proxy.Source {
			return func(ctx context.Context, cache *source.Cache) error {
				from := manifest.New(dir, cache, node, log)
				f.manifests.Store(from)
				return from.Run(ctx)
			}
		}
		return f, nil
	}
}

// Cluster serves the objects of an API server.
func Cluster(o *setup.Options) (*Feed, error) {
	api := API(o)
	client, err := kube.RESTConfig(api)
	if err != nil {
		return nil, err
	}
	f := &Feed{Origin: "API server " + client.Host, Client: client, servers: WatchServer(client)}
	if setup.ModeNamed(o.KubeProxy.Mode).Forwards {
		f.servers.failed = backend.ReleaseAddresses
	}
	f.open = func(node string, log *zap.Logger) proxy.Source {
		api.NodeName = node
		return func(ctx context.Context, cache *source.Cache) error {
			from, err := kube.NewForREST(api, client, cache, log)
			if err != nil {
				return err
			}
			f.cluster.Store(from)
			return from.Run(ctx)
		}
	}
	return f, nil
}

// API returns how to reach the API server.
func API(o *setup.Options) kube.Config {
	c := &o.KubeProxy.ClientConnection
	return kube.Config{
		Kubeconfig: c.Kubeconfig, Master: o.Master, QPS: c.QPS, Burst: int(c.Burst),
		ContentType: c.ContentType, AcceptContentTypes: c.AcceptContentTypes,
		UserAgent: "sluice/" + o.Version,
	}
}

// Node reads the Node of a proxy from the API server.
func Node(ctx context.Context, o *setup.Options, name string) (*service.NodeObject, error) {
	api := API(o)
	api.NodeName = name
	return kube.Node(ctx, api)
}

// Source returns the source of a proxy on a node.
func (f *Feed) Source(node string, log *zap.Logger) proxy.Source { return f.open(node, log) }

// ServerAddresses follows the API server's addresses; nil without one.
func (f *Feed) ServerAddresses() func(context.Context, func([]netip.Addr)) error {
	if f.servers == nil {
		return nil
	}
	return f.servers.follow
}

// Resources returns the state of the requests to the API server; nil without one.
func (f *Feed) Resources() (all []state.Resource) {
	from := f.cluster.Load()
	if from == nil {
		return nil
	}
	for _, r := range from.Status() {
		made := state.Resource{Name: r.Resource, Heard: r.Heard, FailingSince: r.FailingSince, Absent: r.Absent}
		if r.Err != nil {
			made.Error = r.Err.Error()
		}
		all = append(all, made)
	}
	return all
}

// Problems returns what is wrong in the manifests; nil without manifests.
func (f *Feed) Problems() []manifest.Problem {
	if from := f.manifests.Load(); from != nil {
		return from.Problems()
	}
	return nil
}
