package service

import "net/netip"

// NodeObject is what the API said about this node, reduced to what a proxy
// needs. The root package combines it with the configuration and the host's
// addresses into NodeFacts.
type NodeObject struct {
	Name string
	// Zone is the label topology.kubernetes.io/zone.
	Zone string
	// Addresses are status.addresses: every InternalIP in order, then every
	// ExternalIP; what cannot be parsed is left out.
	Addresses []netip.Addr
	// PodCIDRs holds the first spec.podCIDRs entry of each family.
	PodCIDRs PerFamily[netip.Prefix]
	// Deleting is set once metadata.deletionTimestamp is.
	Deleting bool
	// AutoscalerTaint is set while the taint
	// ToBeDeletedByClusterAutoscaler is present.
	AutoscalerTaint bool
}
