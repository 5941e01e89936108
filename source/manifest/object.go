package manifest

import (
	"net/netip"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// objectID names an object across all files. Namespace is empty for kinds that
// have none.
type objectID struct {
	kind, namespace, name string
}

// path gives "namespace/name", or the name alone.
func (id objectID) path() string {
	if id.namespace == "" {
		return id.name
	}
	return id.namespace + "/" + id.name
}

// String gives "Service default/web".
func (id objectID) String() string { return id.kind + " " + id.path() }

// object is one accepted object, reduced to the value of its kind. A nil value
// means that the object is none of a proxy's business.
type object struct {
	id objectID
	// line is where the object starts in its file.
	line     int
	spec     *service.Spec
	slice    *service.Slice
	node     *service.NodeObject
	ranges   []netip.Prefix
	warnings []service.Warning
}

// The kinds that a manifest may hold.
const (
	kindService       = "Service"
	kindEndpointSlice = "EndpointSlice"
	kindNode          = "Node"
	kindServiceCIDR   = "ServiceCIDR"
)

// feed tells the cache what the object is now. Nodes other than nodeName are
// not of interest here.
func (o object) feed(cache *source.Cache, nodeName string) {
	cache.Warn(o.id.kind, o.id.path(), o.warnings)
	switch o.id.kind {
	case kindService:
		if o.spec == nil {
			o.id.remove(cache)
			return
		}
		cache.SetSpec(o.spec)
	case kindEndpointSlice:
		if o.slice == nil {
			o.id.remove(cache)
			return
		}
		cache.SetSlice(o.slice)
	case kindNode:
		if o.id.name == nodeName && o.node != nil {
			cache.SetNode(o.node)
		}
	case kindServiceCIDR:
		cache.SetServiceCIDR(o.id.name, o.ranges)
	}
}

// remove tells the cache that the object is gone. A Node that is gone stays in
// use, as with an API server.
func (id objectID) remove(cache *source.Cache) {
	switch id.kind {
	case kindService:
		cache.RemoveSpec(service.Key{Namespace: id.namespace, Name: id.name})
	case kindEndpointSlice:
		cache.RemoveSlice(id.namespace, id.name)
	case kindServiceCIDR:
		cache.RemoveServiceCIDR(id.name)
	}
}
