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
// While the API server cannot be reached nothing is posted, and everything that
// is known stays in force. Requests are held back, and a probe per second finds out
// when the server is ready (line); then every reflector goes on at once, and the cache
// posts the differences only. An answer is bytes from the server: a connection that is
// accepted and closed, or accepted and silent, is none.
package kube
