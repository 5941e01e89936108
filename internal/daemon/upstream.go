package daemon

import (
	"context"
	"sync/atomic"

	"k8s.io/client-go/rest"

	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/kube"
	"github.com/sluice-proxy/sluice/source/manifest"
)

// Upstream returns where the Services of a configuration come from. It reads files at
// most, and touches nothing on this node.
type Upstream func(o *Options) (*upstream, error)

// upstream is where the Services of one server come from.
type upstream struct {
	// origin says where they come from, in words.
	origin string
	// client is nil without an API server.
	client *rest.Config
	// source is set once it runs; it knows the state of its connection.
	source atomic.Pointer[kube.Source]
	// manifests is set once it runs, with manifests; it knows which of them are rejected.
	manifests atomic.Pointer[manifest.Follower]
	// apiServers are the addresses of the API server; nil without one.
	apiServers *serverAddresses
	// feed returns the source of a server whose log and settings are known.
	feed func(s *server) proxy.Source
}

// Manifests serves the manifests in a directory.
func Manifests(dir string) Upstream {
	return func(*Options) (*upstream, error) {
		u := &upstream{origin: "manifests in " + dir}
		u.feed = func(s *server) proxy.Source {
			return func(ctx context.Context, cache *source.Cache) error {
				from := manifest.New(dir, cache, s.settings.Name, manifest.Options{Log: s.log.Logger})
				u.manifests.Store(from)
				return from.Run(ctx)
			}
		}
		return u, nil
	}
}

// Cluster serves what an API server says.
func Cluster(o *Options) (*upstream, error) {
	api := o.api()
	client, err := kube.RESTConfig(api)
	if err != nil {
		return nil, err
	}
	u := &upstream{origin: "API server " + client.Host, client: client, apiServers: watchServer(client)}
	if o.KubeProxy.Mode == config.ModeUserspace {
		u.apiServers.failed = backend.ReleaseAddresses
	}
	u.feed = func(s *server) proxy.Source {
		api.NodeName = s.settings.Name
		return func(ctx context.Context, cache *source.Cache) error {
			from, err := kube.NewForREST(api, client, cache, s.log.Logger)
			if err != nil {
				return err
			}
			u.source.Store(from)
			return from.Run(ctx)
		}
	}
	return u, nil
}

// api returns how to reach the API server.
func (o *Options) api() kube.Config {
	c := &o.KubeProxy.ClientConnection
	return kube.Config{
		Kubeconfig: c.Kubeconfig, Master: o.Master, QPS: c.QPS, Burst: int(c.Burst),
		ContentType: c.ContentType, AcceptContentTypes: c.AcceptContentTypes,
		ResyncPeriod: o.KubeProxy.ConfigSyncPeriod.Duration, UserAgent: "sluice/" + o.Version,
	}
}
