// SPDX-License-Identifier: Apache-2.0

// Package model is the world of the scenarios in memory: the whole proxy in this
// process, on kernels that take what the real ones take and follow packets through
// the rules. It needs no privilege and nothing waits for a socket, so that a
// scenario in a testing/synctest bubble takes no time but the processor's.
package model

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kube-proxy/config/v1alpha1"

	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/reduce"
	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/nftmodel"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// Mode is the only mode that worlds in memory play.
const Mode = "nftables"

// Options say what kind of proxy runs in a world.
type Options struct {
	// Flags are flags of the proxy by their names without dashes, as those of a
	// real one. Those about connections and files mean nothing here.
	Flags map[string]string
	// PodPort is the name of the node's interface to p1, if not the usual one.
	PodPort string
	// Seed decides what chance does.
	Seed uint64
}

// World is one world. It is the server that takes API objects, too.
type World struct {
	*apitest.Local
	options Options
	kernel  *nftmodel.Kernel

	mu     sync.Mutex
	random *rand.Rand

	stop  context.CancelFunc
	ended chan error
}

// NewWorld makes a world in which no proxy runs yet.
func NewWorld(options Options) *World {
	if options.PodPort == "" {
		options.PodPort = "veth-p1"
	}
	w := &World{
		Local: apitest.NewLocal(), options: options, kernel: nftmodel.NewKernel(),
		random: rand.New(rand.NewPCG(options.Seed, 1)),
	}
	w.kernel.SetAddresses(hostAddresses()...)
	return w
}

// Start starts the proxy.
func (w *World) Start() error {
	if w.stop != nil {
		return errors.New("the proxy runs already")
	}
	loaded, err := w.configuration()
	if err != nil {
		return err
	}
	settings, err := loaded.NodeSettings(v1alpha1.ProxyMode(Mode))
	if err != nil {
		return err
	}
	// The rules include those of the self-test, whose ports no process serves here. No scenario sends packets to them.
	const masqueradeBit = 14 // the default
	var domains []proxy.Domain
	for _, family := range service.Families {
		domains = append(domains, proxy.Domain{
			Name: Mode + "/" + family.String(), Family: family,
			Renderer: nftrender.NewRenderer(family, nftrender.Options{MasqueradeBit: masqueradeBit}),
			Writer:   w.kernel.Writer(family),
		})
	}
	p, err := proxy.New(proxy.Config{
		Node: settings, Domains: domains, Source: w.feed,
		Objects: source.Options{IgnoreExternalIPs: !loaded.GateEnabled(config.GateAllowServiceExternalIPs)},
		HostAddresses: func(ctx context.Context, changed func([]netip.Addr)) error {
			changed(hostAddresses())
			<-ctx.Done()
			return nil
		},
		NodeWait: time.Second, GateWait: time.Second,
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stop, w.ended = stop, make(chan error, 1)
	go func() { w.ended <- p.Run(ctx) }()
	return nil
}

// configuration is that of the flags, read as the proxy reads them.
func (w *World) configuration() (*config.Config, error) {
	set := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	flags := config.BindProxy(set)
	values := map[string]string{
		"hostname-override": fixture.NodeName, "proxy-mode": Mode,
		"cluster-cidr": fixture.Both("cluster-cidr"), "nodeport-addresses": fixture.Both("everything"),
	}
	maps.Copy(values, w.options.Flags)
	words, settings := fixture.Words(values)
	if settings != "" {
		dir, err := os.MkdirTemp("", "settings")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir) // a file is left in the worst case
		flag, err := fixture.WriteSettings(filepath.Join(dir, "settings.yaml"), settings)
		if err != nil {
			return nil, err
		}
		words = append(words, flag)
	}
	if err := set.Parse(words); err != nil {
		return nil, err
	}
	loaded, _, err := flags.Load()
	return loaded, err
}

// feed fills the cache with what the API says, and then with what changes.
func (w *World) feed(ctx context.Context, cache *source.Cache) error {
	if err := follow(w.Local, cache); err != nil {
		return err
	}
	cache.Prime()
	<-ctx.Done()
	return nil
}

// Close ends the proxy, which must not have failed.
func (w *World) Close() error {
	if w.stop == nil {
		return nil
	}
	w.stop()
	if err := <-w.ended; err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the proxy ended: %w", err)
	}
	return nil
}

// follow has a cache follow a server, with the selectors that source/kube asks
// with.
func follow(server *apitest.Local, cache *source.Cache) error {
	return errors.Join(
		server.Follow(apitest.ServiceCIDRs, "", "", func(kind watch.EventType, object runtime.Object) {
			o := object.(*networkingv1.ServiceCIDR)
			if kind == watch.Deleted {
				cache.RemoveServiceCIDR(o.Name)
				return
			}
			ranges, _ := reduce.ServiceCIDR(o)
			cache.SetServiceCIDR(o.Name, ranges)
		}),
		server.Follow(apitest.Nodes, "", "metadata.name="+fixture.NodeName, func(kind watch.EventType, object runtime.Object) {
			// A Node that is deleted stays known.
			if node, _ := reduce.Node(object.(*corev1.Node)); node != nil && kind != watch.Deleted {
				cache.SetNode(node)
			}
		}),
		server.Follow(apitest.Services, "!service.kubernetes.io/service-proxy-name", "spec.clusterIP!=None", func(kind watch.EventType, object runtime.Object) {
			o := object.(*corev1.Service)
			spec, _ := reduce.Policy{}.Service(o)
			if kind == watch.Deleted || spec == nil {
				cache.RemoveSpec(service.Key{Namespace: o.Namespace, Name: o.Name})
				return
			}
			cache.SetSpec(spec)
		}),
		server.Follow(apitest.EndpointSlices, "!service.kubernetes.io/headless", "", func(kind watch.EventType, object runtime.Object) {
			o := object.(*discoveryv1.EndpointSlice)
			slice, _ := reduce.Policy{}.EndpointSlice(o)
			if kind == watch.Deleted || slice == nil {
				cache.RemoveSlice(o.Namespace, o.Name)
				return
			}
			cache.SetSlice(slice)
		}),
	)
}
