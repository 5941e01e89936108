// SPDX-License-Identifier: Apache-2.0

package part

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// View gives parts read access to the proxy. It shows nothing until there is one.
type View struct {
	Domains []proxy.Domain
	proxy   atomic.Pointer[proxy.Proxy]
}

// Show makes a proxy visible.
func (v *View) Show(p *proxy.Proxy) { v.proxy.Store(p) }

// Proxy returns the proxy; nil if there is none yet.
func (v *View) Proxy() *proxy.Proxy { return v.proxy.Load() }

// Snapshots returns the newest snapshot of each domain.
func (v *View) Snapshots() []aggregator.Status {
	if p := v.Proxy(); p != nil {
		return p.Status()
	}
	return nil
}

// Status returns the state of the domains.
func (v *View) Status() (all []health.DomainStatus) {
	for i, status := range v.Snapshots() {
		all = append(all, health.DomainStatus{Status: status, Family: v.Domains[i].Family, Auxiliary: v.Domains[i].Auxiliary})
	}
	return all
}

// SourceEvents returns what the source received.
func (v *View) SourceEvents() (e source.Events) {
	if p := v.Proxy(); p != nil {
		e = p.SourceEvents()
	}
	return e
}

// NodeObject returns what is known of the Node; nil if it is unknown.
func (v *View) NodeObject() *service.NodeObject {
	if p := v.Proxy(); p != nil {
		return p.Node()
	}
	return nil
}

// NodeNow returns the Node object as the source has it now; nil if it is unknown.
func (v *View) NodeNow() *service.NodeObject {
	if p := v.Proxy(); p != nil {
		return p.NodeNow()
	}
	return nil
}

// Families returns the families with rules.
func (v *View) Families() (all []service.Family) {
	for _, d := range v.Domains {
		if !d.Auxiliary && !slices.Contains(all, d.Family) {
			all = append(all, d.Family)
		}
	}
	return all
}

// Right reports whether the kernel has the rules of a family, as far as the proxy knows.
func (v *View) Right(family service.Family) bool {
	for _, d := range v.Status() {
		if d.Family == family && !d.Auxiliary && !d.Right(time.Now()) {
			return false
		}
	}
	return true
}

// The following need a proxy: only the proxy and running parts call them.

// NodePorts returns the addresses on which node ports of a family answer now.
func (v *View) NodePorts(family service.Family) service.NodePortAddresses {
	return v.Facts().NodePorts[family]
}

// Owner returns the Service that owns a frontend, by the newest API objects.
func (v *View) Owner(family service.Family, f service.Frontend) (service.Key, bool) {
	return v.Proxy().Owner(family, f)
}

// Snapshot returns the state of a Service in the API.
func (v *View) Snapshot(key service.Key) service.Snapshot { return v.Proxy().Snapshot(key) }

// Keys lists the Services. It walks all of them.
func (v *View) Keys() []service.Key { return v.Proxy().Keys() }

// Facts returns what rules depend on in addition to Services.
func (v *View) Facts() *service.NodeFacts { return v.Proxy().Facts() }
