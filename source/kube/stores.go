package kube

import clientcache "k8s.io/client-go/tools/cache"

// Stores gives what reflectors of Services and of EndpointSlices write to, for a
// program that has watch events from elsewhere and does not call Run: what it
// writes takes the same way as what a reflector has decoded.
// The cache is primed once Replace of both has been called. Each store is for one
// goroutine.
func (s *Source) Stores() (ofServices, ofSlices clientcache.TransformingStore) {
	gate := newGate(s.cache.Prime, services, endpointSlices)
	return s.serviceStore(gate), s.endpointSliceStore(gate)
}

// firstPicture is the gate of Run. It waits for the ranges of ClusterIPs, too, or
// for the answer that they are not to be had: rules depend on them, and a restart
// that did not know them would take those rules away for a moment.
func (s *Source) firstPicture() *gate {
	return newGate(s.cache.Prime, services, endpointSlices, serviceCIDRs)
}
