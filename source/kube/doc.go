// SPDX-License-Identifier: Apache-2.0

// Package kube feeds a source.Cache from a Kubernetes API server.
//
// One client-go reflector per resource lists and watches, and hands objects to a
// store that reduces them and keeps nothing: the Cache holds the only copy of the
// cluster. Where the server can stream its initial list (watch-list, KEP-3157),
// each object is reduced as soon as it is decoded, so that the whole list never
// exists as API objects.
//
//	services        !service.kubernetes.io/service-proxy-name, spec.clusterIP!=None
//	endpointslices  !service.kubernetes.io/headless
//	nodes           metadata.name=<this node>
//	servicecidrs    all
//
// The cache is primed when services and endpointslices have delivered their
// first list. It does not wait for the other two: a cluster may have no ServiceCIDRs,
// and a node may not have registered yet.
//
// While the API server is unreachable nothing is posted, and the last known state
// stays applied. HTTP/2 pings detect a silent server within 10 s, and
// reflectors retry every few seconds: a change is posted at most 5 s after the
// server is back (ADR 46). The cache posts the differences only. An answer is the header of a response: a connection
// that is accepted and then closed or silent does not count.
package kube
