// SPDX-License-Identifier: Apache-2.0

// Package source turns what the Kubernetes API says into the values of package
// service, and keeps them.
//
//	source/kube ─────┐
//	                 ├─► source/reduce ─► Cache ─► Sink (the directory of actors)
//	source/manifest ─┘                      ▲
//	                                        └─ Snapshot(key), asked by an actor
//
// Exactly one of the two feeders runs in a process: source/kube watches an API
// server, source/manifest follows a directory of files. Both reduce API objects
// to values and hand those to the Cache, which owns "the API cache": it holds the newest value of every object, posts
// only what really differs, and answers Snapshot when an actor has to rehydrate.
//
// Everything here is level-triggered. A post says what an object is now; losing
// one is repaired by the next Snapshot. Losing the API server, or the directory,
// changes nothing: the last known values stay until the source says otherwise.
package source

import (
	"net/netip"

	"github.com/sluice-proxy/sluice/service"
)

// Sink receives what changed, one object at a time. Cache calls it without
// holding a lock. Calls for one object come in order, since one goroutine feeds
// each object; calls for different objects may come concurrently. A Sink must
// not block: it is called from the goroutine that reads the API.
type Sink interface {
	// PostSpec says what the Service is now; a nil spec means that it does not
	// exist, or is of a kind that is not proxied.
	PostSpec(key service.Key, spec *service.Spec)
	// PostSlice says what one slice of the Service is now; a nil slice means
	// that the Service has no slice of that name. Slices of a key without a
	// spec are not posted: the receiver of the spec reads them from Snapshot.
	PostSlice(key service.Key, name string, slice *service.Slice)
	// PostNode says what this node is now.
	PostNode(node *service.NodeObject)
	// PostServiceCIDRs says which ranges ClusterIPs are allocated from, sorted
	// and without duplicates.
	PostServiceCIDRs(ranges []netip.Prefix)
	// Primed is called once, when the cache is complete: from then on Cache.Keys
	// names every Service.
	Primed()
}
