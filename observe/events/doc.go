// Package events tells the API server, as events.k8s.io/v1 objects, what people
// look for with kubectl: that the proxy has started, and what stands in its way.
package events
