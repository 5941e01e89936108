package kube

import clientcache "k8s.io/client-go/tools/cache"

// Stores gives what reflectors of Services and of EndpointSlices write to. Run
// uses them; so may, instead of Run, a program that has watch events from
// elsewhere: what it writes takes the same way as what a reflector has decoded.
// The cache is primed once Replace of both has been called. Each store is for one
// goroutine.
func (s *Source) Stores() (ofServices, ofSlices clientcache.TransformingStore) {
	gate := newGate(s.cache.Prime, services, endpointSlices)
	return s.serviceStore(gate), s.endpointSliceStore(gate)
}
