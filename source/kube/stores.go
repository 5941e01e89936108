package kube

import clientcache "k8s.io/client-go/tools/cache"

// Stores gives what reflectors of Services and of EndpointSlices write to, for a
// program that has watch events from elsewhere and does not call Run: what it
// writes takes the same way as what a reflector has decoded.
// The cache is primed once Replace of both has been called. Each store is for one
// goroutine.
func (s *Source) Stores() (ofServices, ofSlices clientcache.TransformingStore) {
	s.cache.Await(services, endpointSlices)
	return s.serviceStore(), s.endpointSliceStore()
}
